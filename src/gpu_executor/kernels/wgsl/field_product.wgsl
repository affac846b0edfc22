        // The Montgomery product: r, with `carry` above it, is a * b / 2^(32 * $words) mod p, below
        // 2p. The reduction of limbs divides by 2^(LIMBS * BITS), which is 2^$shift times as much,
        // so b is shifted left by $shift bits. 2 * LIMBS^2 + LIMBS products of limbs.
        //
        // Only the limbs of a have a variable index, one per row.
        let none = 0u;
        var x: array<u32, LIMBS>;
        //repeat limb
        x[$i] = limb($a_low, $a_high, ${offset}u);
        let q$i = limb($p_low, $p_high, ${offset}u);
        let y$i = limb($b_low, $b_high, ${shifted_offset}u);
        var t$i = 0u;
        //end

        // Each row adds x[row] * y and the multiple of p that clears the lowest limb, and shifts
        // all limbs down by one. Each t sums two products per row. The topmost t is zero between
        // rows.
        let negative_inverse = param(${negative_inverse}u);
        for (var row = 0u; row < LIMBS; row++) {
            //repeat midway
            if (row == ${half}u) {
            //end
                // Midway each t is the sum of at most 60 products and a carry. After this pass all
                // but the topmost fit BITS bits; the topmost has two products and a carry, and
                // 60 products follow.
                //repeat midway_carry
                t$next += t$i >> BITS;
                t$i &= MASK;
                //end
            //repeat midway
            }
            //end
            let xr = x[row];
            let low = t0 + xr * y0;
            let m = (low * negative_inverse) & MASK;
            t0 = t1 + xr * y1 + m * q1 + ((low + m * q0) >> BITS);
            //repeat upper_limb
            t$below = t$i + xr * y$i + m * q$i;
            //end
        }

        // Propagate the carries and convert limbs to words; the word above the last is the carry.
        //repeat word
        var r$w = 0u;
        //end
        var r$words = 0u;
        var rest = 0u;
        //repeat limb
        rest = (rest >> BITS) + t$i;
        r$word |= (rest & MASK) << ${offset}u;
        r$word_above |= ((rest & MASK) >> 1u) >> ${back}u;
        //end
        let carry = (r$words | (rest >> BITS)) != 0u;

