//! Compares the CEL of the allocator with that of Kubernetes, on random expressions and devices.

use anyhow::{Context as _, ensure};
use dragoman_allocator::cel::{BoundDevice, Compiler, Purpose};
use dragoman_objects::{Attribute, Device};
use fastrand::Rng;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Declared, Judge};

/// The answer of either side to an expression.
#[derive(Debug, PartialEq, Deserialize, Default)]
#[serde(default)]
struct Said {
    matches: Option<bool>,
    derived: Option<Value>,
    error: String,
    compile: bool,
}

/// Dragoman refuses an expression whose values could grow too large before it evaluates the expression.
const TOO_LARGE: &str = "a value could take more than";

const DRIVER: &str = "gpu.example.com";

/// Compares the answers to `count` expressions.
pub(super) fn compare(judge: &Judge, count: usize, seed: u64) -> anyhow::Result<(usize, Declared)> {
    let mut rng = Rng::with_seed(seed);
    let questions: Vec<Value> = (0..count).map(|_| question(&mut rng)).collect();
    let lines: Vec<String> = questions.iter().map(Value::to_string).collect();
    let compiler = Compiler::default();
    let (mut outcomes, mut differences) = ([0; 4], Declared::new());
    for (question, answer) in questions.iter().zip(judge.answer(&lines)?) {
        let theirs: Said = serde_json::from_str(&answer).context("answer")?;
        let ours = ours(&compiler, question)?;
        if ours.compile && !theirs.compile && ours.error.contains(TOO_LARGE) {
            *differences.entry(TOO_LARGE).or_default() += 1;
            continue;
        }
        same(&ours, &theirs)
            .with_context(|| format!("{question}\n  ours   {ours:?}\n  theirs {theirs:?}"))?;
        let outcome = if theirs.compile {
            3
        } else if !theirs.error.is_empty() {
            2
        } else {
            usize::from(theirs.matches == Some(false))
        };
        if let Some(outcome) = outcomes.get_mut(outcome) {
            *outcome += 1;
        }
    }
    let [holds, not, failed, refused] = outcomes;
    println!("        {holds} hold, {not} do not, {failed} fail for the device, {refused} are refused");
    ensure!(outcomes.iter().all(|outcome| outcome * 50 >= count), "one outcome in less than 2 %");
    let different: usize = differences.values().sum();
    ensure!(different * 1000 <= count.max(1000), "{different} differences that are meant");
    Ok((count, differences))
}

fn ours(compiler: &Compiler, question: &Value) -> anyhow::Result<Said> {
    let device: Device = serde_json::from_value(question["device"].clone())?;
    let device = BoundDevice::new(DRIVER.into(), device.into());
    let derived = question["derived"] == json!(true);
    let purpose = if derived { Purpose::DerivedAttribute } else { Purpose::Selector };
    let text = question["expression"].as_str().context("expression")?;
    let expression = match compiler.compile(text, purpose) {
        Ok(expression) => expression,
        Err(why) => return Ok(Said { error: why.to_string(), compile: true, ..Said::default() }),
    };
    let failed = |why: String| Said { error: why, ..Said::default() };
    if derived {
        return Ok(match expression.derive(&device) {
            Ok(attribute) => Said { derived: Some(written(&attribute)), ..Said::default() },
            Err(why) => failed(why.to_string()),
        });
    }
    Ok(match expression.matches(&device) {
        Ok(matches) => Said { matches: Some(matches), ..Said::default() },
        Err(why) => failed(why.to_string()),
    })
}

fn written(attribute: &Attribute) -> Value {
    match attribute {
        Attribute::Int(value) => json!({"int": value}),
        Attribute::Bool(value) => json!({"bool": value}),
        Attribute::String(value) => json!({"string": value}),
        Attribute::Version(value) => json!({"version": value}),
        Attribute::Ints(values) => json!({"ints": values}),
        Attribute::Bools(values) => json!({"bools": values}),
        Attribute::Strings(values) => json!({"strings": values}),
        Attribute::Versions(values) => json!({"versions": values}),
        Attribute::Unknown => json!({}),
    }
}

/// Checks that both sides give the same value, or fail at the same stage.
fn same(ours: &Said, theirs: &Said) -> anyhow::Result<()> {
    ensure!(ours.compile == theirs.compile, "when it is refused");
    ensure!(ours.matches == theirs.matches, "what it says");
    ensure!(ours.derived == theirs.derived, "what it gives");
    ensure!(ours.error.is_empty() == theirs.error.is_empty(), "whether it fails");
    let limit = "cost limit exceeded";
    ensure!(ours.error.contains(limit) == theirs.error.contains(limit), "whether it costs too much");
    Ok(())
}

fn question(rng: &mut Rng) -> Value {
    let mut made = Made(rng);
    let derived = made.chance(15);
    let expression = match (derived, made.chance(1)) {
        (true, _) => made.value(2),
        (false, true) => made.expensive(),
        (false, false) => made.truth(3),
    };
    json!({"expression": expression, "driver": DRIVER, "device": made.device(), "derived": derived})
}

struct Made<'a>(&'a mut Rng);

impl Made<'_> {
    fn chance(&mut self, percent: u8) -> bool {
        self.0.u8(0..100) < percent
    }

    fn one<'t>(&mut self, of: &[&'t str]) -> &'t str {
        of.get(self.0.usize(0..of.len())).copied().unwrap_or_default()
    }

    fn device(&mut self) -> Value {
        let mut device = json!({"name": "device", "attributes": {}, "capacity": {}});
        let mut put = |name: &str, value: Value, there: bool| {
            if there {
                device["attributes"][name] = value;
            }
        };
        put("model", json!({"string": self.one(&["A100", "H100 80GB", "", "ä"])}), self.chance(85));
        put("numa", json!({"int": self.0.i64(-1..3)}), self.chance(85));
        put("healthy", json!({"bool": self.0.bool()}), self.chance(85));
        put("version", json!({"version": self.one(&["1.0.0", "1.2.3-rc.1", "2.0.0+b"])}), self.chance(85));
        put("example.com/rack", json!({"string": self.one(&["r1", "r2"])}), self.chance(70));
        put("numas", json!({"ints": [0, 1]}), self.chance(70));
        put("links", json!({"strings": ["a", "b"]}), self.chance(70));
        if self.chance(85) {
            device["capacity"]["memory"] = json!({"value": self.one(&["80Gi", "40Gi", "1500m", "0"])});
        }
        if self.chance(50) {
            device["allowMultipleAllocations"] = self.0.bool().into();
        }
        device
    }

    fn attribute(&mut self, name: &str) -> String {
        match self.0.u8(0..4) {
            1 => format!("device.attributes['gpu.example.com']['{name}']"),
            2 => format!("device.attributes[device.driver].{name}"),
            _ => format!("device.attributes['gpu.example.com'].{name}"),
        }
    }

    fn text(&mut self, depth: u8) -> String {
        if depth == 0 || self.chance(40) {
            return match self.0.u8(0..6) {
                0 => self.attribute("model"),
                1 => "device.driver".to_owned(),
                2 => "device.attributes['gpu.example.com'].?model.orValue('none')".to_owned(),
                3 => "device.attributes['example.com'].rack".to_owned(),
                _ => format!("'{}'", self.one(&["A100", "H", "gpu", "", "r1", "a.b"])),
            };
        }
        let (a, b) = (self.text(depth - 1), self.text(depth - 1));
        match self.0.u8(0..15) {
            0 => format!("({a} + {b})"),
            1 => format!("{a}.lowerAscii()"),
            12 => {
                format!("url({}).get{}()", self.url(), self.one(&["Host", "Hostname", "Port", "EscapedPath"]))
            }
            13 => format!("string({})", self.duration()),
            14 => format!(
                "['x', {a}].{}",
                self.one(&["reverse()[0]", "last().value()", "sort()[0]", "distinct()[0]"])
            ),
            2 => format!("{a}.replace('A', {b})"),
            3 => format!("{a}.substring(0, 1)"),
            4 => format!("{a}.split('.')[0]"),
            5 => format!("[{a}, {b}].join('-')"),
            6 => format!("{a}.find('[0-9]+')"),
            7 => format!("string({})", self.number(depth - 1)),
            8 => format!("({} ? {a} : {b})", self.truth(depth - 1)),
            9 => format!("cel.bind(x, {a}, x + x)"),
            10 => format!("{a}.trim().upperAscii()"),
            _ => format!("{a}.charAt(0)"),
        }
    }

    fn number(&mut self, depth: u8) -> String {
        if depth == 0 || self.chance(40) {
            return match self.0.u8(0..5) {
                0 => self.attribute("numa"),
                1 => "device.attributes['gpu.example.com'].?numa.orValue(7)".to_owned(),
                _ => self.0.i64(-2..5).to_string(),
            };
        }
        let (a, b) = (self.number(depth - 1), self.number(depth - 1));
        match self.0.u8(0..16) {
            0 => format!("({a} + {b})"),
            12 => format!(
                "{}.get{}()",
                self.duration(),
                self.one(&["Hours", "Minutes", "Seconds", "Milliseconds"])
            ),
            13 => {
                let part =
                    self.one(&["FullYear", "Month", "DayOfYear", "DayOfMonth", "Date", "DayOfWeek", "Hours"]);
                let zone = self.one(&["", "'UTC'", "'+05:30'", "'-11:00'", "'America/New_York'", "'none'"]);
                format!("{}.get{part}({zone})", self.timestamp())
            }
            14 => format!("[{a}, {b}].transformList(i, v, {}v * 2 + i)[0]", self.one(&["", "v > 0, "])),
            15 => format!(
                "lists.range(3).slice(1, {}).{}.orValue({a})",
                self.0.u8(1..4),
                self.one(&["first()", "last()"])
            ),
            1 => format!("({a} * {b})"),
            2 => format!("({a} % {b})"),
            3 => format!("({a} / {b})"),
            4 => format!("size({})", self.text(depth - 1)),
            5 => format!("{}.indexOf('0')", self.text(depth - 1)),
            6 => format!("{}.compareTo({})", self.quantity(depth - 1), self.quantity(depth - 1)),
            7 => format!("{}.major()", self.version()),
            8 => format!("[{a}, {b}].{}()", self.one(&["min", "max", "sum"])),
            // Upstream, a sum in thousandths is no integer, even if it is whole.
            9 => format!("{}.asInteger()", self.quantity(0)),
            10 => format!("int('{}')", self.one(&["7", "-1", "12"])),
            _ => "device.attributes['gpu.example.com'].numas[0]".to_owned(),
        }
    }

    fn quantity(&mut self, depth: u8) -> String {
        match self.0.u8(0..5) {
            0 | 1 => "device.capacity['gpu.example.com'].memory".to_owned(),
            2 if depth > 0 => format!("{}.add({})", self.quantity(depth - 1), self.quantity(depth - 1)),
            3 => "device.capacity['gpu.example.com'].?memory.orValue(quantity('1Gi'))".to_owned(),
            _ => format!("quantity('{}')", self.one(&["80Gi", "1", "1500m", "-1", "x"])),
        }
    }

    fn url(&mut self) -> &'static str {
        self.one(&[
            "'https://user@example.com:8080/a%20b/ä?x=1&y=2&x=3#part'",
            "'http://[::1]:80/a b'",
            "'http://[fe80::1%25en0]/'",
            "'/a/b?c'",
            "'mailto:a@b'",
            "'http://a:b/'",
            "'a/b'",
            "device.driver",
            "'*'",
            "''",
        ])
    }

    fn duration(&mut self) -> String {
        if self.chance(20) {
            return format!("({} - {})", self.timestamp(), self.timestamp());
        }
        format!(
            "duration('{}')",
            self.one(&["1h2m3.5s", "90m", "-1.5h", "0", "15us", "+7s", "1d", "", "300000h"])
        )
    }

    fn timestamp(&mut self) -> String {
        match self.0.u8(0..6) {
            0 => "timestamp(0)".to_owned(),
            1 => format!("(timestamp(1700000000) + {})", self.duration()),
            _ => {
                let texts = [
                    "2024-02-29T23:30:00Z",
                    "2020-07-05T01:02:03.456+01:00",
                    "9999-12-31T23:59:59Z",
                    "2020-07-05",
                ];
                format!("timestamp('{}')", self.one(&texts))
            }
        }
    }

    /// A comprehension with two variables.
    fn pairs(&mut self, depth: u8) -> String {
        let (a, b) = (self.number(depth), self.text(depth));
        match self.0.u8(0..6) {
            0 => format!("[{a}, 1].{}(i, v, v > i)", self.one(&["all", "exists", "existsOne", "exists_one"])),
            1 => format!("device.attributes['gpu.example.com'].exists(k, v, k == {b} || v == {b})"),
            2 => format!("[{b}].transformMap(i, v, v + 'x')[0] == {b}"),
            3 => format!("{{'a': {a}}}.transformMap(k, v, v > 0, v + 1) == {{'a': 2}}"),
            4 => format!("[{a}, 1].transformMapEntry(i, v, {{v: i}}).size() == 2"),
            _ => format!("[{a}, 2].all(i, v, [3].exists(j, v, i + j < v || cel.bind(i, v, i > 0)))"),
        }
    }

    /// A test of the format of a text.
    fn format(&mut self, depth: u8) -> String {
        let text = match self.0.u8(0..3) {
            0 => self.text(depth),
            1 => self.url().to_owned(),
            _ => {
                let texts =
                    ["a-", "A_b/c", "a.b-c", "YWE=", "2020-02-30", "2020-02-29T01:02:03.5z", "1-", "a/b/c"];
                format!("'{}'", self.one(&texts))
            }
        };
        let formats = [
            "dns1123Label",
            "dns1123Subdomain",
            "dns1035Label",
            "qualifiedName",
            "dns1123LabelPrefix",
            "dns1123SubdomainPrefix",
            "dns1035LabelPrefix",
            "labelValue",
            "uri",
            "uuid",
            "byte",
            "date",
            "datetime",
        ];
        let format = self.one(&formats);
        match self.0.u8(0..3) {
            0 => format!("format.named('{format}').value().validate({text}).hasValue()"),
            1 => format!("format.{format}().validate({text}).orValue([]).size() == 1"),
            _ => format!("!format.{format}().validate({text}).hasValue()"),
        }
    }

    fn version(&mut self) -> String {
        match self.0.u8(0..4) {
            0 => self.attribute("version"),
            1 => "device.attributes['gpu.example.com'].?version.orValue(semver('0.1.0'))".to_owned(),
            2 => format!("semver('{}')", self.one(&["1.2.3", "1.2.3+x", "1.0", "v1.0.0", "01.0.0"])),
            _ => format!("semver('{}', true)", self.one(&["v1.0", "1", "01.02.03", "1.0-x"])),
        }
    }

    fn value(&mut self, depth: u8) -> String {
        match self.0.u8(0..5) {
            0 => self.number(depth),
            1 => self.version(),
            2 => self.truth(depth),
            3 => format!("[{}, {}]", self.text(1), self.text(1)),
            _ => self.text(depth),
        }
    }

    /// An expression that does not compile, is no truth value, or fails on evaluation.
    fn mistake(&mut self) -> &'static str {
        self.one(&[
            "device.nothing",
            "device.driver == 1",
            "device.attributes['gpu.example.com'].model",
            "1 + 'a'",
            "unknown",
            "device.driver.nothing()",
            "'a' < 1",
            "[1, 'a'].size() == 2",
            "device.attributes['gpu.example.com'].model.contains(1)",
            "1",
            "(",
            "{'a': 1}.b == 1",
            "[1][3] == 1",
            "size(1) == 1",
            "device.capacity['gpu.example.com'].memory > 1",
        ])
    }

    /// An expression of one step that is true, false or erroneous.
    fn simple_truth(&mut self) -> &'static str {
        self.one(&[
            "true",
            "false",
            "device.allowMultipleAllocations",
            "device.attributes['gpu.example.com'].healthy",
            "has(device.attributes['gpu.example.com'].numa)",
            "'numa' in device.attributes['gpu.example.com']",
            "'gpu.example.com' in device.attributes",
            "device.attributes['none'].size() == 0",
            "has(device.attributes['none'].a)",
        ])
    }

    /// A comparison of two durations or of two timestamps.
    fn times(&mut self) -> String {
        let order = self.one(&["<", "<=", ">", ">=", "==", "!="]);
        if self.0.bool() {
            format!("{} {order} {}", self.duration(), self.duration())
        } else {
            format!("{} {order} {}", self.timestamp(), self.timestamp())
        }
    }

    /// An expression that is true, false or erroneous.
    fn truth(&mut self, depth: u8) -> String {
        if self.chance(6) {
            return self.mistake().to_owned();
        }
        if depth == 0 {
            return self.simple_truth().to_owned();
        }
        let depth = depth - 1;
        match self.0.u8(0..28) {
            22 | 23 => self.pairs(depth),
            24 | 25 => self.format(depth),
            26 => format!("isURL({})", if self.0.bool() { self.url().to_owned() } else { self.text(depth) }),
            27 => self.times(),
            0..4 => {
                let (a, b) = (self.truth(depth), self.truth(depth));
                format!("({a} {} {b})", self.one(&["&&", "||"]))
            }
            4 => format!("!({})", self.truth(depth)),
            5 => format!("{} == {}", self.text(depth), self.text(depth)),
            6 => format!("{}.contains({})", self.text(depth), self.text(depth)),
            7 => format!("{}.startsWith({})", self.text(depth), self.text(depth)),
            8 => format!("{}.matches('^[a-z]+')", self.text(depth)),
            9 | 10 => {
                let (a, b) = (self.number(depth), self.number(depth));
                format!("{a} {} {b}", self.one(&["<", "<=", ">", ">=", "==", "!="]))
            }
            11 => format!("{}.isGreaterThan({})", self.quantity(depth), self.quantity(depth)),
            // Upstream, a sum on the right of `==` is an error, but not one on the left.
            12 => format!("{} == {}", self.quantity(depth), self.quantity(0)),
            13 => format!("{}.isLessThan({})", self.version(), self.version()),
            14 => format!("{} == {}", self.version(), self.version()),
            15 => format!("[{}, {}].exists(x, x == 'A100')", self.text(depth), self.text(depth)),
            16 => format!("[1, 2, 3].all(x, x > {})", self.number(depth)),
            17 => format!("{} in [{}, 'r1']", self.text(depth), self.text(depth)),
            18 => format!("{}.includes({})", self.attribute("numas"), self.number(depth)),
            19 => format!("{}.includes('a')", self.attribute("links")),
            20 => format!("sets.contains({}, ['a'])", self.attribute("links")),
            // Upstream, a sign or a suffix alone is a quantity.
            21 => format!("isQuantity('{}') || isSemver({})", self.one(&["1", "x", "1Gi"]), self.text(depth)),
            _ => format!("[3, {}].map(x, x * 2).filter(x, x > 2).size() == 1", self.number(depth)),
        }
    }

    /// Nested comprehensions, far below the cost limit or far above it.
    fn expensive(&mut self) -> String {
        let ten = "[0,1,2,3,4,5,6,7,8,9]";
        let deep = if self.chance(20) { 6 } else { 2 };
        let mut text = "true".to_owned();
        for level in 0..deep {
            text = format!("{ten}.all(x{level}, x{level} >= 0 && {text})");
        }
        text
    }
}
