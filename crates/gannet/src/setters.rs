//! Methods that change one setting.

/// Public methods that change one setting, as `$body` does to `$it`, and return the changed value.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident($value:ident: $type:ty): |$it:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        pub fn $name(mut self, $value: $type) -> Self {
            let $it = &mut self;
            $body;
            self
        }
    )*};
}

pub(crate) use setters;
