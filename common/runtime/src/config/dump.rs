//! What does `--dump-config` show?
//!
//! The settings in force as TOML that could be used as a file, each with a comment that says which source
//! gave it. Settings that are absent are left out, because TOML cannot write them.

use toml::{Table, Value};

use super::document::join;

/// Every leaf with its source in a comment; plain keys before tables, as TOML demands.
pub(super) fn render(table: &Table, origin: &dyn Fn(&str) -> String) -> String {
    let mut out = String::new();
    section(table, "", "", origin, &mut out);
    out
}

fn section(table: &Table, path: &str, header: &str, origin: &dyn Fn(&str) -> String, out: &mut String) {
    let leaves = table.iter().filter(|(_, value)| !value.is_table());
    let mut headed = header.is_empty();
    for (key, value) in leaves {
        if !headed {
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(&format!("[{header}]\n"));
            headed = true;
        }
        out.push_str(&format!("{} = {value}  # {}\n", written(key), origin(&join(path, key))));
    }
    for (key, value) in table {
        if let Value::Table(inner) = value {
            section(inner, &join(path, key), &join(header, &written(key)), origin, out);
        }
    }
}

/// A key as TOML wants it: bare if it can be.
fn written(key: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !key.is_empty() && key.bytes().all(bare) { key.to_owned() } else { Value::from(key).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_a_file_that_means_the_same() {
        let text =
            "z = 1\nlist = [{a = 1}, {a = 2}]\n[b]\nx = \"two\\nlines\"\n[b.\"c d\"]\ny = [1, 2]\n[e]\n";
        let table: Table = text.parse().unwrap();
        let shown = render(&table, &|key| format!("from {key}"));
        let mut expected = table.clone();
        // A table without keys shows nothing.
        expected.remove("e");
        assert_eq!(shown.parse::<Table>().unwrap(), expected);
        assert!(shown.contains("z = 1  # from z\n"), "{shown}");
        assert!(shown.contains("[b.\"c d\"]\ny = [1, 2]  # from b.c d.y\n"), "{shown}");
    }
}
