        // r = a - b, plus p if that is negative.
        var borrow = false;
        //repeat word
        var r$w = a$w - b$w - u32(borrow);
        borrow = select(a$w < b$w, a$w <= b$w, borrow);
        //end
        var carry = false;
        //repeat word
        let p_or_0_$w = select(0u, p$w, borrow);
        r$w += p_or_0_$w + u32(carry);
        carry = select(r$w < p_or_0_$w, r$w <= p_or_0_$w, carry);
        //end

