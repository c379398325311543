//! Parameters and numbers of kernels, defined once for Rust and WGSL.

/// Defines the parameters of a kernel. `WGSL` declares them as `params`, of type `Params`.
macro_rules! params {
    ($vis:vis struct $name:ident { $($(#[$doc:meta])* $field:ident: $ty:ident),* $(,)? }) => {
        #[repr(C)]
        #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
        $vis struct $name {
            $($(#[$doc])* $vis $field: $ty,)*
        }

        impl $name {
            $vis const WGSL: &str = concat!(
                "struct Params {",
                $(" ", stringify!($field), ": ", stringify!($ty), ",",)*
                " }\nvar<immediate> params: Params;\n"
            );
        }
    };
}

/// Defines a part of parameters that kernels share. `WGSL` declares it under its name.
macro_rules! shared_params {
    (
        $(#[$of_struct:meta])*
        struct $name:ident { $($(#[$doc:meta])* $field:ident: $ty:ident),* $(,)? }
    ) => {
        $(#[$of_struct])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
        pub(crate) struct $name {
            $($(#[$doc])* pub $field: $ty,)*
        }

        impl $name {
            pub const WGSL: &str = concat!(
                "struct ", stringify!($name), " {",
                $(" ", stringify!($field), ": ", stringify!($ty), ",",)*
                " }\n"
            );
        }
    };
}

/// Defines a module of numbers for the variants of an enum. `WGSL` defines them as constants whose
/// names begin with the prefix.
macro_rules! numbers {
    ($(#[$doc:meta])* mod $name:ident, $prefix:literal: $($variant:ident = $number:literal),*) => {
        $(#[$doc])*
        pub(crate) mod $name {
            $(pub const $variant: u32 = $number;)*
            pub const WGSL: &str = concat!(
                $("const ", $prefix, stringify!($variant), " = ", $number, "u;\n",)*
            );
        }
    };
}

pub(crate) use {numbers, params, shared_params};
