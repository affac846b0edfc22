        // r, with `carry` above it, is a + b.
        var carry = false;
        //repeat word
        var r$w = a$w + b$w + u32(carry);
        carry = select(r$w < a$w, r$w <= a$w, carry);
        //end

