        // r, with `carry` above it, is below 2p: subtract p if the difference is not negative.
        var borrow = false;
        //repeat word
        let reduced$w = r$w - p$w - u32(borrow);
        borrow = select(r$w < p$w, r$w <= p$w, borrow);
        //end
        let keep = borrow && !carry;
        //repeat word
        r$w = select(reduced$w, r$w, keep);
        //end

