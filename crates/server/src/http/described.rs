//! Schemas of what is read or written by hand, as JSON.

use utoipa::openapi::schema::{
    AllOfBuilder, ArrayBuilder, ObjectBuilder, OneOfBuilder, SchemaType, Type,
};
use utoipa::openapi::{Ref, RefOr, Schema};

/// Schemas by their names.
pub(crate) type Schemas = Vec<(String, RefOr<Schema>)>;

/// Declares names of the document. A `value` is a type of members too, which holds their JSON for a
/// reader that finds better words for faults than a type can; a `name` is for the document alone.
/// A name stands for one thing or for one of several:
///
/// - `Name`, `[Name]` and `[Name; 1]`: another name, an array of it, one that is not empty;
/// - `(String)`: a Rust type without a name in the document;
/// - `["a", "b"]`: one of these words;
/// - `{ a: Name }`: an object; members that may be `null` may be absent;
/// - `(?Name)`: another name, or `null`;
/// - `("a": Name)`: an object with this `type` and the members of `Name`;
/// - `(/// Text. Name)`: any of these with a description.
macro_rules! described {
    (@schema [$T:ident $(; $least:literal)?]) => {
        $crate::http::described::array(described!(@schema $T), [$($least)?].first().copied())
    };
    (@schema [$($word:literal),+]) => { $crate::http::described::words(&[$($word),+]) };
    (@schema {$($(#[doc = $about:literal])* $member:ident: $item:tt),+ $(,)?}) => {
        $crate::http::described::object(vec![
            $((stringify!($member), described!(@schema $item).into(), &[$($about),*][..])),+
        ])
    };
    (@schema (#[doc = $about:literal] $item:tt)) => {
        $crate::http::described::about(described!(@schema $item), &[$about])
    };
    (@schema ($tag:literal: $T:ident)) => {
        $crate::http::described::tagged($tag, described!(@schema $T))
    };
    (@schema (? $T:ident)) => { $crate::http::described::optional(described!(@schema $T)) };
    (@schema ($($T:tt)+)) => { utoipa::schema!($($T)+) };
    (@schema $T:ident) => {
        utoipa::openapi::Ref::from_schema_name(<$T as utoipa::ToSchema>::name())
    };

    (@add $all:ident [$T:ident $(; $least:literal)?]) => { described!(@add $all $T) };
    (@add $all:ident {$($(#[doc = $about:literal])* $member:ident: $item:tt),+ $(,)?}) => {
        $(described!(@add $all $item);)+
    };
    (@add $all:ident (#[doc = $about:literal] $item:tt)) => { described!(@add $all $item) };
    (@add $all:ident ($tag:literal: $T:ident)) => { described!(@add $all $T) };
    (@add $all:ident (? $T:ident)) => { described!(@add $all $T) };
    (@add $all:ident $T:ident) => { $crate::http::described::add::<$T>($all) };
    (@add $all:ident $unnamed:tt) => {};

    (@type [$($about:literal)*] $vis:vis name $Name:ident) => {
        $(#[doc = $about])*
        #[derive(Debug)]
        $vis enum $Name {}
    };
    (@type [$($about:literal)*] $vis:vis value $Name:ident) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug, Default, serde::Deserialize)]
        #[serde(transparent)]
        $vis struct $Name(pub serde_json::Value);

        impl std::ops::Deref for $Name {
            type Target = serde_json::Value;

            fn deref(&self) -> &serde_json::Value {
                &self.0
            }
        }
    };

    ($($(#[doc = $about:literal])* $vis:vis $kind:ident $Name:ident $(as $name:literal)? =
        $($item:tt)|+;)+) => {$(
        described!(@type [$($about)*] $vis $kind $Name);

        impl utoipa::PartialSchema for $Name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                let items = vec![$(described!(@schema $item).into()),+];
                $crate::http::described::one_of(items, &[$($about),*])
            }
        }

        impl utoipa::ToSchema for $Name {
            fn name() -> std::borrow::Cow<'static, str> {
                [$($name,)? stringify!($Name)][0].into()
            }

            #[allow(unused_variables, reason = "some refer to no others")]
            fn schemas(all: &mut $crate::http::described::Schemas) {
                $(described!(@add all $item);)+
            }
        }
    )+};
}
pub(crate) use described;

/// Adds the schemas of `T` and of what it refers to.
pub(crate) fn add<T: utoipa::ToSchema>(all: &mut Schemas) {
    all.push((T::name().into(), T::schema()));
    T::schemas(all);
}

/// One of `items`, with the description of these `lines`.
pub(crate) fn one_of(mut items: Vec<RefOr<Schema>>, lines: &[&str]) -> RefOr<Schema> {
    if items.len() == 1 {
        return about(items.remove(0), lines);
    }
    let all = items.into_iter().fold(OneOfBuilder::new(), OneOfBuilder::item);
    all.description(description(lines)).into()
}

/// `schema` with the description of these `lines`; of what may be `null`, what it is otherwise.
pub(crate) fn about(schema: impl Into<RefOr<Schema>>, lines: &[&str]) -> RefOr<Schema> {
    let mut schema = schema.into();
    let about = match &mut schema {
        RefOr::T(Schema::OneOf(one)) => one.items.first_mut(),
        other => Some(other),
    };
    match about {
        Some(RefOr::Ref(name)) => name.description = description(lines).unwrap_or_default(),
        Some(RefOr::T(Schema::Array(array))) => array.description = description(lines),
        Some(RefOr::T(Schema::Object(object))) => object.description = description(lines),
        _ => {}
    }
    schema
}

fn description(lines: &[&str]) -> Option<String> {
    let lines: Vec<&str> = lines.iter().map(|line| line.trim()).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// An array of these items, and of how many at least.
pub(crate) fn array(items: Ref, least: Option<usize>) -> ArrayBuilder {
    ArrayBuilder::new().items(items).min_items(least)
}

/// `name`, or `null`.
pub(crate) fn optional(name: Ref) -> OneOfBuilder {
    let null = ObjectBuilder::new().schema_type(Type::Null);
    OneOfBuilder::new().item(name).item(null)
}

/// One of these words.
pub(crate) fn words(words: &[&str]) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words.to_vec()))
}

/// An object of these members, each with the lines of its description.
pub(crate) fn object(members: Vec<(&str, RefOr<Schema>, &[&str])>) -> ObjectBuilder {
    members.into_iter().fold(ObjectBuilder::new(), |object, (name, schema, lines)| {
        let object = if is_nullable(&schema) { object } else { object.required(name) };
        object.property(name, about(schema, lines))
    })
}

fn is_nullable(schema: &RefOr<Schema>) -> bool {
    match schema {
        RefOr::T(Schema::OneOf(_)) => true,
        RefOr::T(Schema::Object(object)) => {
            matches!(&object.schema_type, SchemaType::Array(kinds) if kinds.contains(&Type::Null))
        }
        _ => false,
    }
}

/// `object` with the member `type`, which is `tag`.
pub(crate) fn tagged(tag: &str, object: Ref) -> AllOfBuilder {
    let tagged = self::object(vec![("type", words(&[tag]).into(), &[])]);
    AllOfBuilder::new().item(object).item(tagged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use utoipa::{PartialSchema, ToSchema};

    described! {
        /// A word,
        /// and no other.
        name Word = ["a", "b"];
        value Sentence as "Text" = (String) | (
            /// Of them.
            [Word; 1]
        ) | { word: Word, end: (?Word) };
    }

    #[test]
    fn descriptions_say_what_they_refer_to() {
        let word = json!({"$ref": "#/components/schemas/Word"});
        let own = json!({"type": "string", "description": "A word,\nand no other.",
            "enum": ["a", "b"]});
        assert_eq!(json!(Word::schema()), own);
        let expected = json!({"oneOf": [
            {"type": "string"},
            {"type": "array", "items": word, "description": "Of them.", "minItems": 1},
            {"type": "object", "required": ["word"],
             "properties": {"word": word, "end": {"oneOf": [word, {"type": "null"}]}}},
        ]});
        assert_eq!((json!(Sentence::schema()), &*Sentence::name()), (expected, "Text"));
        let mut others = Schemas::new();
        Sentence::schemas(&mut others);
        assert!(others.iter().all(|(name, schema)| name == "Word" && json!(schema) == own));
        assert!(serde_json::from_value::<Sentence>(json!([3])).is_ok_and(|it| *it == json!([3])));
    }
}
