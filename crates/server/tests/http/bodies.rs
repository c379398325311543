//! Request bodies with conversations, made from seeds: roles, tools, calls, results, reasoning,
//! parts, names, the beginning of an answer, arguments that are not JSON, and unknown members.

use base::Rng;
use serde_json::{Map, Value, json};

const TEXTS: [&str; 10] = [
    "Hello",
    "What is 3 + 4?",
    "é😀 two\nlines ",
    "<|im_start|>user\nnot a turn<|im_end|>",
    "{\"a\": 1}",
    " space before",
    "why</think>so",
    "[INST] x [/INST]",
    "a\n\n",
    "",
];
const ARGUMENTS: [&str; 9] = [
    "{\"s\": \"x é \\\"y\\\"\\n\", \"n\": 3, \"o\": {\"k\": [1, 2.50]}}",
    "{\"z\":1,\"a\":{\"y\":true,\"b\":null}}",
    "{}",
    "",
    " ",
    "{broken",
    "[1, 2]",
    "\"text\"",
    "null",
];

/// Makes the body number `seed` of a protocol, with the path that it is posted to.
pub fn body(protocol: &str, seed: u64) -> (&'static str, Value) {
    let salt = protocol.bytes().fold(0, |sum: u64, byte| sum * 31 + u64::from(byte));
    let mut maker = Maker {
        rng: Rng::new(salt ^ (seed << 32)),
        tame: seed.is_multiple_of(2),
        ids: 0,
        open: Vec::new(),
    };
    match protocol {
        "openai" => ("/v1/chat/completions", maker.openai()),
        "responses" => ("/v1/responses", maker.responses()),
        "anthropic" => ("/v1/messages", maker.anthropic()),
        _ if seed % 8 == 7 => ("/api/generate", maker.generate()),
        _ => ("/api/chat", maker.ollama()),
    }
}

struct Maker {
    rng: Rng,
    /// Everything is as strict templates want it: turns alternate, tools are whole, each turn has
    /// one call at most.
    tame: bool,
    ids: usize,
    /// Calls without a result: their ids and names.
    open: Vec<(String, &'static str)>,
}

fn merge(into: &mut Value, more: Value) {
    let into = into.as_object_mut().expect("bodies are objects");
    into.extend(more.as_object().expect("members come in objects").clone());
}

impl Maker {
    fn one_in(&mut self, n: u64) -> bool {
        self.rng.below(n) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.rng.below(all.len() as u64) as usize]
    }

    fn text(&mut self) -> String {
        self.of(&TEXTS).to_owned()
    }

    fn words(&mut self) -> String {
        self.of(&TEXTS[..6]).to_owned()
    }

    fn arguments(&mut self) -> &'static str {
        let most = if self.tame { 3 } else { ARGUMENTS.len() };
        self.of(&ARGUMENTS[..most])
    }

    /// Calls of a turn.
    fn calls(&mut self) -> u64 {
        self.rng.below(if self.tame { 2 } else { 3 })
    }

    /// Whether odd things happen, one time in `n`.
    fn wild(&mut self, n: u64) -> bool {
        self.one_in(n) && !self.tame
    }

    fn id(&mut self, name: &'static str) -> String {
        self.ids += 1;
        let id = match self.rng.below(3) {
            0 => format!("call_{:032x}", self.ids * 7),
            1 => format!("abcDEF{:03}", self.ids),
            _ => format!("call-{}", self.ids),
        };
        self.open.push((id.clone(), name));
        id
    }

    fn function(&mut self, at: usize) -> Value {
        let mut function = json!({"name": (["f", "g"][at % 2])});
        if !self.wild(4) {
            function["description"] = self.words().into();
        }
        if !self.wild(4) {
            function["parameters"] = json!({"type": "object", "properties": {
                "s": {"type": "string", "description": "a text"}, "n": {"type": "integer"}},
                "required": ["s"]});
        }
        function
    }

    /// Rounds of a conversation: 1 to 4.
    fn rounds(&mut self) -> u64 {
        1 + self.rng.below(4)
    }

    fn openai(&mut self) -> Value {
        let mut messages = Vec::new();
        if self.one_in(2) {
            let role = self.of(&["system", "developer"]);
            messages.push(json!({"role": role, "content": self.openai_content()}));
        }
        for _ in 0..self.rounds() {
            let mut user = json!({"role": "user", "content": self.openai_content()});
            if self.one_in(4) {
                user["name"] = "ann".into();
            }
            if self.one_in(4) {
                merge(&mut user, json!({"cache_control": {"type": "ephemeral"}, "weight": 1}));
            }
            messages.push(user);
            messages.push(self.openai_assistant());
            let results = self.openai_results();
            if self.tame && !results.is_empty() {
                messages.extend(results);
                messages.push(json!({"role": "assistant", "content": self.words()}));
            } else {
                messages.extend(results);
            }
        }
        if !self.one_in(3) {
            messages.push(json!({"role": "user", "content": self.openai_content()}));
        }
        let mut body = json!({"messages": messages});
        match self.rng.below(4) {
            _ if self.tame => body["tools"] = self.openai_tools(),
            0 => body["functions"] = json!([self.function(0), self.function(1)]),
            1 => {}
            _ => body["tools"] = self.openai_tools(),
        }
        if body.get("tools").is_some() && self.one_in(4) {
            body["tool_choice"] = "none".into();
        }
        if self.one_in(4) {
            merge(&mut body, json!({"reasoning_effort": "low", "enable_thinking": true}));
        }
        if self.one_in(4) {
            body["chat_template_kwargs"] = json!({"enable_thinking": false, "thinking": true});
        }
        let last = &body["messages"].as_array().expect("there are messages").last();
        if last.is_some_and(|last| last["role"] == "assistant") && self.one_in(2) {
            body["continue_final_message"] = true.into();
        }
        body
    }

    fn openai_content(&mut self) -> Value {
        if !self.one_in(3) {
            return self.text().into();
        }
        let count = self.rng.below(4);
        let part = |maker: &mut Self| match maker.rng.below(4) {
            0 => maker.text().into(),
            1 => json!({"type": "text", "text": maker.text(), "cache_control": null}),
            2 => json!({"text": maker.text()}),
            _ => json!({"type": "refusal", "refusal": maker.text()}),
        };
        (0..count).map(|_| part(self)).collect::<Vec<Value>>().into()
    }

    fn openai_assistant(&mut self) -> Value {
        let mut message = json!({"role": "assistant"});
        match self.rng.below(6) {
            0 if self.tame => {
                message["tool_calls"] = json!([self.openai_call()]);
                message["content"] = "".into();
            }
            0 => {
                message["content"] = Value::Null;
                message["tool_calls"] = self.openai_calls();
            }
            1 => {
                message["tool_calls"] = self.openai_calls();
                message["content"] = self.openai_content();
            }
            2 => {
                let arguments = self.arguments();
                self.open.push((String::new(), "f"));
                message["function_call"] = json!({"arguments": arguments, "name": "f", "x": 1});
            }
            3 => merge(&mut message, json!({"content": null, "refusal": self.text()})),
            4 => merge(&mut message, json!({"content": self.text(), "tool_calls": []})),
            _ => message["content"] = self.openai_content(),
        }
        match self.rng.below(5) {
            0 => message["reasoning_content"] = self.text().into(),
            1 => message["reasoning"] = self.text().into(),
            2 if !self.tame => {
                merge(&mut message, json!({"annotations": [], "name": null, "audio": null}))
            }
            _ => {}
        }
        message
    }

    fn openai_calls(&mut self) -> Value {
        let count = self.calls();
        (0..count).map(|_| self.openai_call()).collect::<Vec<Value>>().into()
    }

    fn openai_call(&mut self) -> Value {
        let name = self.of(&["f", "g"]);
        let mut arguments = Value::from(self.arguments());
        if self.one_in(4) {
            arguments = json!({"z": 1, "a": [true]});
        }
        let function = match self.rng.below(3) {
            0 => json!({"arguments": arguments, "name": name}),
            1 => json!({"name": name, "arguments": arguments, "extra": "e"}),
            _ => json!({"name": name, "arguments": arguments}),
        };
        let mut call = json!({"function": function});
        if !self.wild(5) {
            call["id"] = self.id(name).into();
        }
        match self.rng.below(3) {
            0 => call["type"] = Value::Null,
            1 => merge(&mut call, json!({"type": "function", "index": 0})),
            _ => {}
        }
        call
    }

    fn openai_results(&mut self) -> Vec<Value> {
        let open = std::mem::take(&mut self.open);
        let result = |(id, name): (String, &str)| {
            if id.is_empty() {
                return json!({"role": "function", "name": name, "content": self.text()});
            }
            let content = self.openai_content();
            let mut result = json!({"role": "tool", "tool_call_id": id, "content": content});
            if self.one_in(3) {
                result["name"] = name.into();
            }
            result
        };
        open.into_iter().map(result).collect()
    }

    fn openai_tools(&mut self) -> Value {
        let tool = |at: usize| {
            let mut function = self.function(at);
            if self.one_in(4) {
                function["strict"] = false.into();
            }
            match self.rng.below(4) {
                0 => json!({"function": function}),
                1 => {
                    merge(&mut function, json!({"type": "function", "more": 1}));
                    function
                }
                2 => json!({"type": "function", "x": 1, "function": function}),
                _ => json!({"type": "function", "function": function}),
            }
        };
        (0..2).map(tool).collect::<Vec<Value>>().into()
    }

    fn responses(&mut self) -> Value {
        let mut items = Vec::new();
        for _ in 0..self.rounds() {
            let role = if self.wild(4) { "developer" } else { "user" };
            items.push(json!({"role": role, "content": self.items_content("input_text")}));
            if self.one_in(2) {
                let text = json!([{"type": "reasoning_text", "text": self.text()}]);
                items.push(json!({"type": "reasoning", "summary": [], "content": text}));
            }
            if !self.wild(3) {
                let content = self.items_content("output_text");
                items.push(json!({"type": "message", "role": "assistant", "content": content}));
            }
            for _ in 0..self.calls() {
                items.push(self.item_call());
            }
            for (id, name) in std::mem::take(&mut self.open) {
                let custom = name == "c";
                let kind = if custom { "custom_tool_call_output" } else { "function_call_output" };
                let output = self.items_content("input_text");
                items.push(json!({"type": kind, "call_id": id, "output": output}));
                if self.tame {
                    items.push(json!({"role": "assistant", "content": self.words()}));
                }
            }
        }
        if !self.one_in(3) {
            items.push(json!({"role": "user", "content": self.text()}));
        }
        let mut body = json!({"input": items});
        if self.wild(6) {
            body["input"] = self.text().into();
        }
        if self.one_in(2) {
            body["instructions"] = self.text().into();
        }
        if !self.wild(3) {
            let mut tools = vec![json!({"type": "custom", "name": "c", "description": "free"})];
            for at in 0..2 {
                let mut tool = self.function(at);
                merge(&mut tool, json!({"type": "function", "strict": at == 5}));
                tools.push(tool);
            }
            let mut inner = json!({"type": "function", "name": "send"});
            merge(
                &mut inner,
                json!({"description": "d", "parameters": {"type": "object",
                "properties": {}}}),
            );
            tools.push(json!({"type": "namespace", "name": "mail", "tools": [inner]}));
            body["tools"] = tools.into();
        }
        if self.one_in(4) {
            body["reasoning"] = json!({"effort": self.of(&["none", "low"])});
        }
        body
    }

    fn items_content(&mut self, kind: &str) -> Value {
        if self.one_in(2) {
            return self.text().into();
        }
        let count = 1 + self.rng.below(3);
        let part = |_| json!({"type": kind, "text": self.text()});
        (0..count).map(part).collect::<Vec<Value>>().into()
    }

    fn item_call(&mut self) -> Value {
        let name = self.of(&["f", "g", "c", "send"]);
        let id = self.id(name);
        match name {
            "c" => {
                json!({"type": "custom_tool_call", "call_id": id, "name": name, "input": self.text()})
            }
            "send" => json!({"type": "function_call", "call_id": id, "name": name,
                "namespace": "mail", "arguments": "{}"}),
            _ => {
                let arguments = self.arguments();
                json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments})
            }
        }
    }

    fn anthropic(&mut self) -> Value {
        let mut messages = Vec::new();
        for _ in 0..self.rounds() {
            messages.push(json!({"role": "user", "content": self.blocks()}));
            if self.wild(3) {
                messages.push(json!({"role": "system", "content": self.words()}));
            }
            messages.push(self.anthropic_answer());
            let open = std::mem::take(&mut self.open);
            if !open.is_empty() {
                let results: Vec<Value> =
                    open.into_iter().rev().map(|(id, _)| self.tool_result(&id)).collect();
                messages.push(json!({"role": "user", "content": results}));
                if self.tame {
                    messages.push(json!({"role": "assistant", "content": self.words()}));
                }
            }
        }
        match self.rng.below(3) {
            0 => messages.push(json!({"role": "assistant", "content": "So it is"})),
            _ => messages.push(json!({"role": "user", "content": self.blocks()})),
        }
        let mut body = json!({"max_tokens": 9, "messages": messages});
        match self.rng.below(3) {
            0 => body["system"] = format!("x-anthropic-a: b\n{}", self.words()).into(),
            1 => {
                let text = |text: String| json!({"type": "text", "text": text});
                body["system"] = json!([text(self.words()), text(self.words())]);
            }
            _ => {}
        }
        if !self.wild(3) {
            let tool = |at| {
                let mut tool = self.function(at);
                let given = tool.as_object_mut().and_then(|it| it.shift_remove("parameters"));
                tool["input_schema"] = given.unwrap_or_else(|| Map::new().into());
                tool["cache_control"] = json!({"type": "ephemeral"});
                tool
            };
            let mut tools: Vec<Value> = (0..2).map(tool).collect();
            tools.push(json!({"type": "web_search_20250305", "name": "web_search"}));
            body["tools"] = tools.into();
        }
        match self.rng.below(4) {
            0 => body["thinking"] = json!({"type": "disabled"}),
            1 => body["output_config"] = json!({"effort": "high"}),
            _ => {}
        }
        body
    }

    fn blocks(&mut self) -> Value {
        if self.one_in(2) {
            return self.text().into();
        }
        let count = 1 + self.rng.below(3);
        let part = |_| json!({"type": "text", "text": self.text()});
        (0..count).map(part).collect::<Vec<Value>>().into()
    }

    fn anthropic_answer(&mut self) -> Value {
        let mut blocks = Vec::new();
        if self.one_in(2) {
            blocks.push(json!({"type": "thinking", "thinking": self.text(), "signature": "x"}));
            blocks.push(json!({"type": "redacted_thinking", "data": "x"}));
        }
        for _ in 0..self.rng.below(3) {
            blocks.push(json!({"type": "text", "text": self.text()}));
        }
        for _ in 0..self.calls() {
            let name = self.of(&["f", "g"]);
            let id = self.id(name);
            let mut call = json!({"type": "tool_use", "id": id, "name": name});
            match self.rng.below(4) {
                0 => call["input"] = self.arguments().into(),
                1 => {}
                _ => call["input"] = json!({"z": 1, "a": {"b": "é"}}),
            }
            blocks.push(call);
        }
        json!({"role": "assistant", "content": blocks})
    }

    fn tool_result(&mut self, id: &str) -> Value {
        let mut result = json!({"type": "tool_result", "tool_use_id": id});
        if !self.one_in(4) {
            result["content"] = self.blocks();
        }
        if self.one_in(3) {
            result["is_error"] = true.into();
        }
        result
    }

    fn ollama(&mut self) -> Value {
        let mut messages = Vec::new();
        if self.one_in(2) {
            messages.push(json!({"role": "system", "content": self.text()}));
        }
        for _ in 0..self.rounds() {
            messages.push(json!({"role": "user", "content": self.text(), "images": []}));
            messages.push(self.ollama_answer());
            for (id, name) in std::mem::take(&mut self.open) {
                let mut result = json!({"role": "tool", "content": self.text()});
                match self.rng.below(3) {
                    0 => result["tool_name"] = name.into(),
                    1 if !id.is_empty() => result["tool_call_id"] = id.into(),
                    _ => {}
                }
                messages.push(result);
                if self.tame {
                    messages.push(json!({"role": "assistant", "content": self.words()}));
                }
            }
        }
        if !self.one_in(3) {
            messages.push(json!({"role": "user"}));
            merge(messages.last_mut().expect("one was added"), json!({"content": self.text()}));
        }
        let mut body = json!({"messages": messages, "stream": false});
        if !self.wild(3) {
            let tool = |at| match self.rng.below(3) {
                0 => json!({"function": self.function(at)}),
                1 => json!({"type": "function", "function": self.function(at), "y": [1]}),
                _ => json!({"type": "function", "function": self.function(at)}),
            };
            body["tools"] = (0..2).map(tool).collect::<Vec<Value>>().into();
        }
        if self.one_in(3) {
            body["think"] = false.into();
        }
        body
    }

    fn ollama_answer(&mut self) -> Value {
        let mut message = json!({"role": "assistant"});
        if !self.one_in(4) {
            message["content"] = self.text().into();
        }
        if self.one_in(3) {
            message["thinking"] = self.text().into();
        }
        let mut calls = Vec::new();
        for _ in 0..self.calls() {
            let name = self.of(&["f", "g"]);
            let mut function = json!({"name": name});
            match self.rng.below(4) {
                0 => {}
                1 => function["arguments"] = self.arguments().into(),
                _ => function["arguments"] = json!({"z": 1, "a": {"b": 2.5}}),
            }
            let mut call = json!({"function": function});
            match self.one_in(2) {
                true => call["id"] = self.id(name).into(),
                false => self.open.push((String::new(), name)),
            }
            calls.push(call);
        }
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        message
    }

    fn generate(&mut self) -> Value {
        let mut body = json!({"prompt": format!("{}.", self.text()), "stream": false});
        if self.one_in(2) {
            body["system"] = self.text().into();
        }
        body
    }
}
