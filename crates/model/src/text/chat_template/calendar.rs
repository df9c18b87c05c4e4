//! A moment in words, as C's `strftime` writes it in English and UTC.

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
/// From the day of the week of 1 January 1970.
const WEEKDAYS: [&str; 7] = [
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
];
const DAY_SECONDS: i64 = 86_400;
/// Years that a template may be shown; a clock outside them is broken.
const YEARS: std::ops::RangeInclusive<i64> = 1970..=9999;

/// A date and time of day in UTC.
struct Moment {
    year: i64,
    /// From 0.
    month: i64,
    /// From 1.
    day: i64,
    /// Of the year, from 1.
    year_day: i64,
    weekday: i64,
    second: i64,
}

impl Moment {
    fn at(unix_seconds: i64) -> Option<Self> {
        let days = unix_seconds.div_euclid(DAY_SECONDS);
        let mut year = *YEARS.start();
        let mut left = days;
        if left < 0 {
            return None;
        }
        while left >= year_days(year) {
            left -= year_days(year);
            year += 1;
            if !YEARS.contains(&year) {
                return None;
            }
        }
        let year_day = left + 1;
        let mut month = 0;
        while left >= month_days(year, month) {
            left -= month_days(year, month);
            month += 1;
        }
        Some(Self {
            year,
            month,
            day: left + 1,
            year_day,
            weekday: days.rem_euclid(7),
            second: unix_seconds.rem_euclid(DAY_SECONDS),
        })
    }

    fn month_name(&self) -> &'static str {
        name(&MONTHS, self.month)
    }

    fn weekday_name(&self) -> &'static str {
        name(&WEEKDAYS, self.weekday)
    }
}

fn name(names: &[&'static str], index: i64) -> &'static str {
    let index = usize::try_from(index).unwrap_or_default();
    names.get(index).copied().unwrap_or_default()
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn year_days(year: i64) -> i64 {
    if is_leap(year) { 366 } else { 365 }
}

fn month_days(year: i64, month: i64) -> i64 {
    match month {
        1 if is_leap(year) => 29,
        1 => 28,
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

/// `format` with its directives replaced; `None` for a directive or a year that is not known.
pub(super) fn format_time(unix_seconds: i64, format: &str) -> Option<String> {
    let moment = Moment::at(unix_seconds)?;
    let mut text = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        match characters.next()? {
            // glibc's flag for "no padding".
            '-' => text.push_str(directive(&moment, characters.next()?)?.trim_start_matches('0')),
            letter => text.push_str(&directive(&moment, letter)?),
        }
    }
    Some(text)
}

fn directive(moment: &Moment, letter: char) -> Option<String> {
    let (hour, minute, second) = (
        moment.second / 3600,
        moment.second / 60 % 60,
        moment.second % 60,
    );
    let month = moment.month + 1;
    let short = |name: &str| name.chars().take(3).collect::<String>();
    Some(match letter {
        'Y' => moment.year.to_string(),
        'y' => format!("{:02}", moment.year % 100),
        'm' => format!("{month:02}"),
        'd' => format!("{:02}", moment.day),
        'e' => format!("{:2}", moment.day),
        'j' => format!("{:03}", moment.year_day),
        'H' => format!("{hour:02}"),
        'I' => format!("{:02}", (hour + 11) % 12 + 1),
        'M' => format!("{minute:02}"),
        'S' => format!("{second:02}"),
        'p' => if hour < 12 { "AM" } else { "PM" }.to_owned(),
        'B' => moment.month_name().to_owned(),
        'b' | 'h' => short(moment.month_name()),
        'A' => moment.weekday_name().to_owned(),
        'a' => short(moment.weekday_name()),
        'F' => format!("{}-{month:02}-{:02}", moment.year, moment.day),
        'T' => format!("{hour:02}:{minute:02}:{second:02}"),
        'R' => format!("{hour:02}:{minute:02}"),
        'Z' => "UTC".to_owned(),
        'z' => "+0000".to_owned(),
        '%' => "%".to_owned(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
