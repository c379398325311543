//! Devices: the list of them, and the choice of one.

use crate::gannet::{check_error, run, succeed, tiny};
use serde_json::Value;

#[test]
fn devices_are_listed_by_the_names_that_open_them() {
    let list: Value = serde_json::from_str(&succeed(&["devices", "--json"])).unwrap();
    let devices = list.as_array().unwrap();
    assert_eq!(devices[0]["name"], "cpu");
    assert!(succeed(&["devices"]).starts_with("cpu: "));
    for device in devices.iter().filter(|device| device["missing"] == Value::Array(Vec::new())) {
        let name = device["name"].as_str().unwrap();
        succeed(&["run", "-m", &tiny(), "--device", name, "-n", "1", "Hello"]);
    }
}

#[test]
fn a_device_that_is_not_there_is_an_error_that_says_what_is() {
    let ended = run(&["run", "--device", "tpu", "Hello"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.err.contains("device must be auto or one of cpu, reference"), "{}", ended.err);
    check_error(&run(&["run", "--device", "cpu:1", "Hello"]), "there is one device cpu");
    check_error(&run(&["run", "--device", "reference", "Hello"]), "no mode but exact");
}
