//! Who may do what, and what is written down about it (design, sections 8, 12 and 15.10).

mod audit;
mod token;
