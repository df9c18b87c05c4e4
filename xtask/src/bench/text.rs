//! Prompts whose answers repeat what stands in them, and one whose answer does not.

const CODE: &str = "\
<|im_start|>user
Here is a file:
```python
def invoice(items, rate):
    total = 0
    for item in items:
        total = total + item.price * item.count
        if item.is_reduced:
            total = total - item.reduction
    return total * (1 + rate)

def refund(items, rate):
    total = 0
    for item in items:
        total = total + item.price * item.count
        if item.is_reduced:
            total = total - item.reduction
    return total * (1 - rate)

def weight(items, box):
    total = box.weight
    for item in items:
        total = total + item.weight * item.count
    return total
```
Rename the function `invoice` to `bill` and return the whole file.<|im_end|>
<|im_start|>assistant
Here is the whole file with `invoice` renamed to `bill`:
```python
";

const JSON: &str = "\
[
  {\"id\": 1, \"name\": \"pump\", \"status\": \"running\", \"temperature\": 61.5, \"pressure\": 2.1, \"alarms\": []},
  {\"id\": 2, \"name\": \"pump\", \"status\": \"running\", \"temperature\": 60.5, \"pressure\": 2.1, \"alarms\": []},
  {\"id\": 3, \"name\": \"pump\", \"status\": \"running\", \"temperature\": 61.0, \"pressure\": 2.1, \"alarms\": []},
  {\"id\": 4, \"name\": \"pump\", \"status\": \"running\", \"temperature\": 60.0, \"pressure\": 2.1, \"alarms\": []},
";

const PLAIN: &str = "\
In the last week of October the railway office prints its winter timetable, and for as long \
as anyone could remember it had been set by hand. This year";

/// Name, prompt and temperature. Greedy answers of small models soon go round in circles, so
/// that text which must not repeat itself is drawn.
pub(super) const SPECULATED: [(&str, &str, f64); 3] = [
    ("code", CODE, 0.0),
    ("json", JSON, 0.0),
    ("plain", PLAIN, 1.0),
];

/// A number that differs between texts (FNV-1a, 32 bits).
pub(super) fn fingerprint(text: &str) -> f64 {
    let hash = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    f64::from(hash)
}
