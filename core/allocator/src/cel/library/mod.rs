//! The function libraries.

mod equality;
mod formats;
mod lists;
mod loops;
mod macros;
mod net;
mod quantity;
mod regexes;
mod semver;
mod sets;
mod times;
mod urls;

pub(super) use self::equality::{AMONG, EQUALS};
pub(super) use self::lists::LONGEST_RANGE;
pub(super) use self::loops::PAIRS;
pub(super) use self::regexes::cost_of_pattern;
pub(super) use self::times::UTC;

use cel::common::types::CelString;
use cel::common::value::{CowVal, FromVal, Val};
use cel::{DeclarationError, Env, ExecutionError, extensions};

/// The bounded variant of `matches`. The one of the `cel` crate compiles patterns of any size.
pub(super) const MATCHES: &str = "@matches";
/// The bounded variant of `lists.range`. The one of the `cel` crate allows a million numbers.
pub(super) const RANGE: &str = "@range";

/// Returns the environment in which expressions are parsed and evaluated.
pub(super) fn environment() -> Env {
    let mut env = Env::stdlib();
    for extend in [
        extensions::strings,
        extensions::lists,
        quantity::extension,
        semver::extension,
        regexes::extension,
        lists::extension,
        sets::extension,
        equality::extension,
        net::extension,
        times::extension,
        urls::extension,
        formats::extension,
        macros::extension,
        loops::extension,
    ] {
        // Only two functions of one name and signature can collide, and the tests would show that.
        let declared: Result<(), DeclarationError> = env.add_extension(extend);
        debug_assert!(declared.is_ok(), "{declared:?}");
    }
    env
}

/// The arguments of a call, read by their declared types.
struct Arguments<'a, 'b, 'v>(&'static str, &'a [CowVal<'b, 'v>]);

impl<'a, 'v> Arguments<'a, '_, 'v> {
    fn any(&self, place: usize) -> Result<&'a (dyn Val + 'v), ExecutionError> {
        let argument = self.1.get(place).ok_or(ExecutionError::MissingArgumentOrTarget)?;
        Ok(argument.as_ref())
    }

    fn typed<T: FromVal<'a, 'v> + Val>(&self, place: usize) -> Result<&'a T, ExecutionError> {
        let value = self.any(place)?;
        value.downcast_ref::<T>().ok_or_else(|| ExecutionError::UnexpectedType {
            got: value.get_type().name().to_owned(),
            want: T::cel_type().name().to_owned(),
        })
    }

    fn text(&self, place: usize) -> Result<&'a str, ExecutionError> {
        self.typed::<CelString<'v>>(place).map(CelString::inner)
    }

    /// Returns an error of the called function.
    fn failed(&self, why: impl std::fmt::Display) -> ExecutionError {
        ExecutionError::FunctionError { function: self.0.to_owned(), message: why.to_string() }
    }

    /// Returns the elements of a list argument.
    fn list(&self, place: usize) -> Result<Vec<&'a (dyn Val + 'v)>, ExecutionError> {
        let list = self.any(place)?.as_iterable().ok_or_else(|| self.failed("not a list"))?;
        let mut items = list.iter();
        Ok(std::iter::from_fn(|| items.next()).collect())
    }
}

/// Declares a function: the types of its arguments, and an expression over them.
macro_rules! function {
    ($env:ident, $name:literal($($given:expr),*) |$arguments:ident| $body:expr) => {
        $env.add_overload($name, concat!($name, "(", $(stringify!($given), ",",)* ")"), vec![$($given),*], |given| {
            let $arguments = $crate::cel::library::Arguments($name, &given);
            Ok(cel::common::value::CowVal::owned($body))
        })?;
    };
    ($env:ident, $target:expr => $name:literal($($given:expr),*) |$arguments:ident| $body:expr) => {
        $env.add_member_overload(
            $name,
            concat!(stringify!($target), ".", $name, "(", $(stringify!($given), ",",)* ")"),
            $target,
            vec![$($given),*],
            |given| {
                let $arguments = $crate::cel::library::Arguments($name, &given);
                Ok(cel::common::value::CowVal::owned($body))
            },
        )?;
    };
}
use function;
