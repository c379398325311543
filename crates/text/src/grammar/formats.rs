//! The formats of strings as regular expressions, for strings that are written without quotes.
//!
//! They are the languages that llguidance has for `format` in JSON.

/// Returns the expression of a format; `None` if it says nothing.
pub(super) fn expression(format: &str) -> Option<String> {
    let octet = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
    let ipv4 = format!("({octet}\\.){{3}}{octet}");
    let label = "[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?";
    Some(match format {
        "date" => date(),
        "time" => time(),
        "date-time" => format!("{}[tT]{}", date(), time()),
        "duration" => duration(),
        "email" => {
            let atom = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+";
            format!("{atom}(\\.{atom})*@({label}(\\.{label})*|\\[{ipv4}\\])")
        }
        "hostname" => {
            let short = "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?";
            format!("{short}(\\.{short})*")
        }
        "ipv4" => ipv4,
        "ipv6" => ipv6(),
        "uuid" => "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}".into(),
        "uri" => uri(&ipv4),
        _ => return None,
    })
}

fn date() -> String {
    let long = "(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])";
    let short = "(0[469]|11)-(0[1-9]|[12][0-9]|30)";
    format!("[0-9]{{4}}-({long}|{short}|02-(0[1-9]|[12][0-9]))")
}

fn time() -> String {
    let clock = "([01][0-9]|2[0-3]):[0-5][0-9]";
    format!("{clock}:([0-5][0-9]|60)(\\.[0-9]+)?([zZ]|[+-]{clock})")
}

/// Units follow each other without a gap: hours and seconds need minutes between them.
fn duration() -> String {
    let chain = |units: [char; 3]| {
        let [first, second, third] = units.map(|unit| format!("[0-9]+{unit}"));
        format!("({first}({second}({third})?)?|{second}({third})?|{third})")
    };
    let time = format!("T{}", chain(['H', 'M', 'S']));
    format!("P({}({time})?|{time}|[0-9]+W)", chain(['Y', 'M', 'D']))
}

/// Eight groups, or fewer with one gap; the last two groups may not be an IPv4 address.
fn ipv6() -> String {
    let group = "[0-9a-fA-F]{1,4}";
    let before = |most: usize| format!("(({group}:){{0,{most}}}{group})?");
    let mut forms = vec![format!("({group}:){{7}}{group}")];
    forms.push(format!("::({group}:){{0,5}}{group}:{group}"));
    for (most, rest) in [4, 3, 2].into_iter().enumerate() {
        forms.push(format!("{}::({group}:){{0,{rest}}}{group}:{group}", before(most)));
    }
    forms.push(format!("{}::{group}:{group}:{group}", before(3)));
    forms.push(format!("{}::{group}:{group}", before(4)));
    forms.push(format!("{}::{group}", before(5)));
    forms.push(format!("{}::", before(6)));
    forms.join("|")
}

/// RFC 3986.
fn uri(ipv4: &str) -> String {
    let percent = "%[0-9a-fA-F]{2}";
    let characters = |more: &str| format!("([a-zA-Z0-9._~!$&'()*+,;={more}-]|{percent})");
    let segment = characters(":@");
    let group = "[0-9a-fA-F]{1,4}";
    let mut hosts = vec![format!("({group}:){{7}}{group}"), format!("({group}:){{1,7}}:")];
    hosts.extend(
        (1..7).map(|after| format!("({group}:){{1,{}}}(:{group}){{1,{after}}}", 7 - after)),
    );
    hosts.extend([format!(":(:{group}){{1,7}}"), "::".into()]);
    hosts.push("v[0-9a-fA-F]+\\.[a-zA-Z0-9._~!$&'()*+,;=:-]+".into());
    let host = format!("(\\[({})\\]|{ipv4}|{}*)", hosts.join("|"), characters(""));
    let authority = format!("({}*@)?{host}(:[0-9]*)?", characters(":"));
    let path = format!("/({segment}+(/{segment}*)*)?|{segment}+(/{segment}*)*|");
    let rest = characters(":@/?");
    format!("[a-zA-Z][a-zA-Z0-9+.-]*:(//{authority}(/{segment}*)*|{path})(\\?{rest}*)?(#{rest}*)?")
}
