//! Line charts as SVG, small enough to be read and compared as text.

use anyhow::Result;

use super::growth;
use super::model::{Family, Model};
use super::peers::Engine;
use super::samples::Samples;
use super::work::{CLIENTS, Work};
use crate::workspace::Workspace;

const FOLDER: &str = "docs/plots";
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 320.0;
/// Space around the plotted area: left, right, top, bottom.
const MARGINS: [f64; 4] = [56.0, 16.0, 36.0, 44.0];
const TICKS: usize = 5;
const ENGINES: [(Engine, &str); 3] = [
    (Engine::Relight, "#c2410c"),
    (Engine::Llama, "#2563eb"),
    (Engine::Ik, "#4d7c0f"),
];

/// One line of a chart.
#[derive(Debug)]
struct Curve {
    name: &'static str,
    colour: &'static str,
    points: Vec<(f64, f64)>,
}

#[derive(Debug)]
struct Chart {
    title: String,
    x_name: &'static str,
    y_name: &'static str,
    curves: Vec<Curve>,
}

/// Writes the charts of the models that have points, and gives the text that shows them.
pub(super) fn write(workspace: &Workspace, samples: &Samples, models: &[Model]) -> Result<String> {
    std::fs::create_dir_all(workspace.path(FOLDER))?;
    let mut text = String::new();
    let small = |model: &&Model| matches!(model.family, Family::SmolLm2 | Family::Gemma3);
    for model in models.iter().filter(small) {
        let charts = [
            ("decode", decode_chart(samples, model)),
            ("streams", streams_chart(samples, model)),
        ];
        for (name, chart) in charts {
            if chart.curves.iter().all(|curve| curve.points.len() < 2) {
                continue;
            }
            let file = format!("{name}-{}.svg", model.short());
            std::fs::write(workspace.path(FOLDER).join(&file), chart.svg())?;
            text += &format!("\n![{}](plots/{file})\n", chart.title);
        }
    }
    Ok(text)
}

fn decode_chart(samples: &Samples, model: &Model) -> Chart {
    Chart {
        title: format!("{}: decode of one stream", model.short()),
        x_name: "tokens of context",
        y_name: "tokens/s",
        curves: curves(|engine| {
            let points = growth::decode_points(samples, model, engine);
            points
                .into_iter()
                .map(|(context, seconds)| (context, 1.0 / seconds))
                .collect()
        }),
    }
}

fn streams_chart(samples: &Samples, model: &Model) -> Chart {
    Chart {
        title: format!("{}: output of streams that start at once", model.short()),
        x_name: "streams",
        y_name: "output tokens/s",
        curves: curves(|engine| {
            let point = |clients: usize| {
                let work = Work::Streams(clients).name();
                let series = samples.series(&model.file, &work, engine)?;
                Some((clients as f64, series.median("output_tokens_s")?))
            };
            CLIENTS.into_iter().filter_map(point).collect()
        }),
    }
}

fn curves(points: impl Fn(Engine) -> Vec<(f64, f64)>) -> Vec<Curve> {
    let curves = ENGINES.map(|(engine, colour)| Curve {
        name: engine.name(),
        colour,
        points: points(engine),
    });
    curves
        .into_iter()
        .filter(|curve| !curve.points.is_empty())
        .collect()
}

/// The next of 1, 2, 5, 10, 20, 50, … that is no less, so that ticks are round.
fn round_up(value: f64) -> f64 {
    let magnitude = 10.0_f64.powf(value.max(1e-9).log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * magnitude);
    steps
        .into_iter()
        .find(|step| *step >= value * 0.9999)
        .unwrap_or(value)
}

impl Chart {
    /// Largest values of both axes, which begin at 0.
    fn extent(&self) -> (f64, f64) {
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let x = points().map(|point| point.0).fold(1.0, f64::max);
        let y = points().map(|point| point.1).fold(1.0, f64::max);
        let step = round_up(y / TICKS as f64);
        (x, step * (y / step).ceil())
    }

    fn svg(&self) -> String {
        let [left, right, top, bottom] = MARGINS;
        let (x_max, y_max) = self.extent();
        let x_of = |x: f64| left + (WIDTH - left - right) * x / x_max;
        let y_of = |y: f64| HEIGHT - bottom - (HEIGHT - top - bottom) * y / y_max;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\" role=\"img\">\n\
             <title>{title}</title>\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
             <text x=\"{left}\" y=\"20\" font-size=\"14\" font-weight=\"bold\">{title}</text>\n",
            title = self.title,
        );
        svg += &self.axes(x_of, y_of);
        for (index, curve) in self.curves.iter().enumerate() {
            svg += &curve.svg(x_of, y_of);
            let x = WIDTH - right - 116.0;
            let y = top + 8.0 + 16.0 * index as f64;
            svg += &format!(
                "<rect x=\"{x}\" y=\"{y}\" width=\"14\" height=\"4\" fill=\"{}\"/>\n\
                 <text x=\"{}\" y=\"{}\">{}</text>\n",
                curve.colour,
                x + 20.0,
                y + 6.0,
                curve.name,
            );
        }
        svg + "</svg>\n"
    }

    fn axes(&self, x_of: impl Fn(f64) -> f64, y_of: impl Fn(f64) -> f64) -> String {
        let (x_max, y_max) = self.extent();
        let mut svg = String::new();
        let step = round_up(y_max / TICKS as f64);
        let mut tick = 0.0;
        while tick <= y_max * 1.0001 {
            let (x, y) = (x_of(0.0), y_of(tick));
            svg += &format!(
                "<line x1=\"{x}\" y1=\"{y:.1}\" x2=\"{}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\n\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{tick}</text>\n",
                x_of(x_max),
                x - 6.0,
                y + 4.0,
            );
            tick += step;
        }
        let places = self.curves.iter().flat_map(|curve| &curve.points);
        let mut places: Vec<f64> = places.map(|point| point.0).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        for place in places {
            svg += &format!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{place}</text>\n",
                x_of(place),
                y_of(0.0) + 16.0,
            );
        }
        let middle = x_of(x_max / 2.0);
        svg += &format!(
            "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
            HEIGHT - 8.0,
            self.x_name,
            y_of(y_max / 2.0),
            self.y_name,
        );
        svg
    }
}

impl Curve {
    fn svg(&self, x_of: impl Fn(f64) -> f64, y_of: impl Fn(f64) -> f64) -> String {
        let place = |point: &(f64, f64)| (x_of(point.0), y_of(point.1));
        let places: Vec<(f64, f64)> = self.points.iter().map(place).collect();
        let path = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}"));
        let path = path.collect::<Vec<_>>().join(" ");
        let colour = self.colour;
        let dots = places.iter().map(|(x, y)| {
            format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>\n")
        });
        let dots: String = dots.collect();
        format!(
            "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n{dots}"
        )
    }
}

#[cfg(test)]
mod tests;
