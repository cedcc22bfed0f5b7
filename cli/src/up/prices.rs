//! The price list of a gateway's bills, from a file.

use std::path::{Path, PathBuf};

use fanfold_gateway::Prices;

use crate::failure::Failure;

/// `--prices`.
#[derive(Debug, clap::Args)]
pub struct PriceList {
    /// TOML file with the prices that bills of jobs are made with [default: those of S3 and a rented machine]
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
}

impl PriceList {
    /// The prices of the file; what is not in it has its default.
    pub fn read(&self) -> Result<Prices, Failure> {
        let Some(file) = &self.prices else { return Ok(Prices::default()) };
        let text = std::fs::read_to_string(file).map_err(|e| Failure::file(file, &e))?;
        parse(&text).map_err(|why| refused(file, &why))
    }
}

fn parse(text: &str) -> Result<Prices, String> {
    let prices: Prices = toml::from_str(text).map_err(|e| e.to_string().trim_end().to_owned())?;
    prices.check().map(|()| prices)
}

fn refused(file: &Path, why: &str) -> Failure {
    Failure::usage(
        format!("--prices {}: {why}", file.display()),
        "docs/cli.md lists the prices; each is a line such as `million_put = 5.0`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_list_replaces_what_it_names() {
        let prices = parse("currency = \"EUR\"\ncpu_hour = 0.05\nmillion_put = 0").unwrap();
        assert_eq!((prices.currency.as_str(), prices.cpu_hour, prices.million_put), ("EUR", 0.05, 0.0));
        assert_eq!(prices.million_get, Prices::default().million_get);
        assert!(parse("cpu_hours = 1.0").unwrap_err().contains("cpu_hours"));
        assert!(parse("gb_out = -1.0").unwrap_err().contains("`gb_out` is -1"));
        assert!(parse("gb_out = nan").is_err());
    }
}
