use super::*;

fn receipt() -> Receipt {
    let settings = r#"{"checkpoint": "02ab", "mode": "fast", "kv_type": "bf16",
        "arithmetic": "bytes+f32", "arithmetic_version": 3, "threads": 2, "block": 16,
        "chunk": 512}"#;
    Receipt {
        receipt: VERSION,
        gannet: "0.1.0".into(),
        model: ReceiptModel {
            weights: sha256(b"weights"),
            tokenizer: sha256(b"tokenizer"),
            template: Some(sha256(b"template")),
        },
        settings: serde_json::from_str(settings).unwrap(),
        request: ReceiptRequest {
            prompt: IdsDigest::of(&[1, 2, 3]),
            max_tokens: 9,
            min_tokens: 0,
            stop_ids: vec![2],
            sampling: SamplingParams {
                logit_bias: vec![(3, f32::NEG_INFINITY), (4, 0.1)],
                temperature: 0.7,
                seed: Some(12),
                ..SamplingParams::default()
            },
            constraint: None,
        },
        answer: ReceiptAnswer::of(
            &[7, 8],
            "stop",
            RecordedChoices { logits: vec![1, 2, 3], greedy: vec![1] },
        ),
        signature: None,
    }
}

#[test]
fn receipts_come_back_as_they_went() {
    let whole = receipt();
    let text = whole.to_json().to_string();
    assert!(text.contains("\"temperature\":0.7,"), "{text}");
    assert_eq!(Receipt::parse(&text), Ok(whole.clone()));
    assert_eq!(whole.check_signature(), Ok(None));
    let signed = whole.clone().signed(&ReceiptKey::new(&[3; 32]));
    assert_eq!(Receipt::parse(&format!("{:#}", signed.to_json())), Ok(signed.clone()));
    assert!(signed.check_signature().unwrap().is_some());
    assert_ne!(signed.digest(), whole.digest());
    assert!(whole.differences(&signed).is_empty());
}

#[test]
fn any_changed_byte_of_a_signed_receipt_fails() {
    let signed = receipt().signed(&ReceiptKey::new(&[3; 32]));
    let text = canonical(&signed.to_json()).into_bytes();
    for at in 0..text.len() {
        for bit in 0..8 {
            let mut changed = text.clone();
            changed[at] ^= 1 << bit;
            let changed = String::from_utf8(changed).map_err(|_| "not UTF-8".to_owned());
            let parsed = changed.and_then(|text| Receipt::parse(&text));
            let checked = parsed.and_then(|it| it.check_signature().map(|key| key.is_some()));
            assert_ne!(checked, Ok(true), "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn members_that_receipts_do_not_have_are_refused() {
    let mut other = receipt().to_json();
    other["request"]["sampling"]["text"] = "x".into();
    let error = Receipt::parse(&other.to_string()).unwrap_err();
    assert!(error.contains("members that receipts do not have"), "{error}");
    let mut other = receipt().to_json();
    other["receipt"] = 2.into();
    let error = Receipt::parse(&other.to_string()).unwrap_err();
    assert_eq!(error, "expected version 1 of receipts, found 2");
}

#[test]
fn differences_name_the_first_logits() {
    let (one, mut other) = (receipt(), receipt());
    other.answer.logits[1] = "f".repeat(16);
    other.answer.logits[2] = "e".repeat(16);
    let parts: Vec<String> = one.differences(&other).into_iter().map(|it| it.part).collect();
    assert_eq!(parts, ["logits of token 1"]);
    other = receipt();
    other.answer.logits.pop();
    assert_eq!(one.differences(&other)[0].found, "none");
}

#[test]
fn digests_of_ids_are_those_of_their_bytes() {
    // printf '\1\0\0\0\0\1\0\0' | sha256sum
    let digest = "242045e2f1bb37769b514f182fd91b3d215324cb57f187cced1e9c62921dbac3";
    let found = IdsDigest::of(&[1, 256]);
    assert_eq!((found.tokens, &*found.sha256), (2, digest));
    assert_ne!(found, IdsDigest::of(&[256, 1]));
}
