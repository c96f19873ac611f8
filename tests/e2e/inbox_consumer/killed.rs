//! A consumer process, `kill -9`, at each step: the effect's row exists once, and no message is lost (invariant 11).
