//! `url(text)` and the functions of URLs.

use std::collections::HashMap;

use cel::common::types::{CelBool, CelList, CelMap, CelMapKey, CelString, STRING_TYPE, Type};
use cel::common::value::Val;
use cel::{DeclarationError, Env, ExecutionError};

use super::{Arguments, function};
use crate::cel::types::UrlVal;
use crate::cel::url::Url;

const URL: Type = UrlVal::TYPE;

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_type(URL)?;
    function!(
        env,
        "url"(STRING_TYPE) | given | {
            let url = Url::parse(given.text(0)?);
            UrlVal(
                url.map_err(|why| {
                    given.failed(format!("URL parse error during conversion from string: {why}"))
                })?
                .into(),
            )
        }
    );
    function!(env, "isURL"(STRING_TYPE) | given | CelBool::from(Url::check(given.text(0)?).is_ok()));
    function!(env, URL => "getScheme"() |given| text(&url(&given)?.scheme));
    function!(env, URL => "getHost"() |given| text(&url(&given)?.host));
    function!(env, URL => "getHostname"() |given| text(url(&given)?.hostname()));
    function!(env, URL => "getPort"() |given| text(url(&given)?.port()));
    function!(env, URL => "getEscapedPath"() |given| text(&url(&given)?.path));
    function!(env, URL => "getQuery"() |given| query(url(&given)?));
    Ok(())
}

fn url<'a>(given: &Arguments<'a, '_, '_>) -> Result<&'a Url, ExecutionError> {
    given.typed::<UrlVal>(0).map(|url| &*url.0)
}

fn text(text: &str) -> CelString<'static> {
    CelString::from(text.to_owned())
}

fn query(url: &Url) -> CelMap<'static> {
    let list = |values: Vec<String>| -> Box<dyn Val> {
        let values: Vec<Box<dyn Val>> =
            values.into_iter().map(|value| Box::new(CelString::from(value)) as _).collect();
        Box::new(CelList::from(values))
    };
    let parameters = url.parameters().into_iter().map(|(name, values)| (CelMapKey::from(name), list(values)));
    CelMap::from(parameters.collect::<HashMap<_, _>>())
}
