//! Pages of items.

use crate::http::error::HttpError;
use crate::protocols::responses::history::Item;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};

const LIMIT: usize = 20;
const MOST: usize = 100;

/// Which items are wanted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Page {
    /// Those behind the item of this id.
    after: Option<String>,
    /// So many; 1 to 100, 20 by default.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<usize>,
    /// The newest first, unless it is `asc`.
    #[param(inline)]
    order: Option<Order>,
}

/// The order of items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Order {
    Asc,
    #[default]
    Desc,
}

/// A page of items.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ItemList {
    object: &'static str,
    #[schema(value_type = Vec<Object>)]
    data: Vec<Value>,
    first_id: Option<String>,
    last_id: Option<String>,
    has_more: bool,
}

impl ItemList {
    /// The wanted page of `items`, the oldest of which comes first.
    pub fn of(mut items: Vec<Arc<Item>>, page: &Page) -> Result<Self, HttpError> {
        let limit = page.limit.unwrap_or(LIMIT);
        if !(1..=MOST).contains(&limit) {
            let message = format!("limit must be 1 to {MOST}, not {limit}");
            return Err(HttpError::invalid("limit", message));
        }
        if page.order.unwrap_or_default() == Order::Desc {
            items.reverse();
        }
        let start = match &page.after {
            None => 0,
            Some(id) => {
                items.iter().position(|item| item.id() == id).map(|at| at + 1).ok_or_else(|| {
                    HttpError::invalid("after", format!("after: there is no item {id}"))
                })?
            }
        };
        let rest = &items[start..];
        let shown = &rest[..rest.len().min(limit)];
        let id = |item: &Arc<Item>| item.id().to_owned();
        Ok(Self {
            object: "list",
            data: shown.iter().map(|item| item.json()).collect(),
            first_id: shown.first().map(id),
            last_id: shown.last().map(id),
            has_more: rest.len() > limit,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocols::responses::history::ItemRole;

    fn page(after: Option<&str>, limit: Option<usize>, order: Option<Order>) -> Option<String> {
        let item = |number: usize| {
            let texts = vec!["x".into()];
            Arc::new(Item::Message { id: number.to_string(), role: ItemRole::User, texts })
        };
        let page = Page { after: after.map(str::to_owned), limit, order };
        let list = ItemList::of((0..5).map(item).collect(), &page).ok()?;
        let ids: String = list.data.iter().filter_map(|item| item["id"].as_str()).collect();
        Some(if list.has_more { ids + "+" } else { ids })
    }

    fn check(found: Option<String>, expected: &str) {
        assert_eq!(found.as_deref(), Some(expected));
    }

    #[test]
    fn pages_follow_each_other_in_either_order() {
        check(page(None, None, None), "43210");
        check(page(None, Some(2), None), "43+");
        check(page(Some("3"), Some(2), None), "21+");
        check(page(Some("1"), Some(2), Some(Order::Asc)), "23+");
        check(page(Some("2"), Some(2), Some(Order::Asc)), "34");
        check(page(Some("4"), None, Some(Order::Asc)), "");
    }

    #[test]
    fn pages_that_cannot_be_are_refused() {
        assert_eq!(page(None, Some(0), None), None);
        assert_eq!(page(None, Some(101), None), None);
        assert_eq!(page(Some("9"), None, None), None);
    }
}
