//! `format.named(name)`, `format.uuid()` and the other formats, and `validate(text)`.

use cel::common::types::{CelList, CelOptional, CelString, STRING_TYPE, Type};
use cel::common::value::Val;
use cel::{DeclarationError, Env};

use super::function;
use crate::cel::format::{FORMATS, Format};
use crate::cel::types::FormatVal;

const FORMAT: Type = FormatVal::TYPE;

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_type(FORMAT)?;
    function!(env, "format.dns1123Label"() | _given | FormatVal(Format::Dns1123Label));
    function!(env, "format.dns1123Subdomain"() | _given | FormatVal(Format::Dns1123Subdomain));
    function!(env, "format.dns1035Label"() | _given | FormatVal(Format::Dns1035Label));
    function!(env, "format.qualifiedName"() | _given | FormatVal(Format::QualifiedName));
    function!(env, "format.dns1123LabelPrefix"() | _given | FormatVal(Format::Dns1123LabelPrefix));
    function!(env, "format.dns1123SubdomainPrefix"() | _given | FormatVal(Format::Dns1123SubdomainPrefix));
    function!(env, "format.dns1035LabelPrefix"() | _given | FormatVal(Format::Dns1035LabelPrefix));
    function!(env, "format.labelValue"() | _given | FormatVal(Format::LabelValue));
    function!(env, "format.uri"() | _given | FormatVal(Format::Uri));
    function!(env, "format.uuid"() | _given | FormatVal(Format::Uuid));
    function!(env, "format.byte"() | _given | FormatVal(Format::Byte));
    function!(env, "format.date"() | _given | FormatVal(Format::Date));
    function!(env, "format.datetime"() | _given | FormatVal(Format::Datetime));
    function!(
        env,
        "format.named"(STRING_TYPE) | given | {
            let wanted = given.text(0)?;
            let known = FORMATS.iter().find(|(name, _)| *name == wanted);
            known.map_or_else(CelOptional::none, |(_, format)| CelOptional::of(Box::new(FormatVal(*format))))
        }
    );
    function!(env, FORMAT => "validate"(STRING_TYPE) |given| {
        let wrong = given.typed::<FormatVal>(0)?.0.validate(given.text(1)?);
        let list = |wrong: Vec<String>| -> Box<dyn Val> {
            let wrong: Vec<Box<dyn Val>> =
                wrong.into_iter().map(|why| Box::new(CelString::from(why)) as _).collect();
            Box::new(CelList::from(wrong))
        };
        if wrong.is_empty() { CelOptional::none() } else { CelOptional::of(list(wrong)) }
    });
    Ok(())
}
