//! The devices that a DeviceFootprint is about.

use std::fmt;
use std::sync::Arc;

use dragoman_objects::Name;

use super::SliceDevice;

/// `spec.selector` of a DeviceFootprint: CEL over a device. This crate has no CEL: another one hands in
/// the evaluation. Selectors are equal if their texts are.
#[derive(Clone)]
pub struct Selector {
    text: Name,
    evaluation: Option<Arc<Evaluation>>,
}

/// Tells whether a device of the footprint's driver is selected, or why that is not known.
type Evaluation = dyn Fn(&SliceDevice) -> Result<bool, String> + Send + Sync;

impl Selector {
    /// A selector that nothing evaluates: it may be about any device of the driver.
    pub fn unevaluated(text: &str) -> Self {
        Self { text: text.into(), evaluation: None }
    }

    /// The same selector, evaluated by `evaluation`, whose error says why it is not known whether a
    /// device is selected.
    #[must_use]
    pub fn evaluated(
        self,
        evaluation: impl Fn(&SliceDevice) -> Result<bool, String> + Send + Sync + 'static,
    ) -> Self {
        Self { evaluation: Some(Arc::new(evaluation)), ..self }
    }

    /// The expression.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the device is selected.
    ///
    /// # Errors
    /// Says why that is not known.
    pub fn selects(&self, device: &SliceDevice) -> Result<bool, String> {
        let evaluation = self.evaluation.as_ref().ok_or_else(|| "it is not evaluated here".to_owned())?;
        evaluation(device)
    }
}

impl PartialEq for Selector {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Selector {}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}
