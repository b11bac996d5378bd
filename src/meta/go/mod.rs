//! Go's peculiarities that clients see: parsing and printing as in its standard library and
//! upstream's libraries. Each file imitates one package, messages included.

pub mod base64;
mod duration;
pub mod cron;
mod print;
pub mod quantity;
pub mod regexp;
pub mod url;

pub use duration::{format_duration, parse_duration};
pub use print::{
    json, json_string, json_type, quote, quote_all, sprint, sprint_float, sprint_number, syntax,
    type_name,
};
