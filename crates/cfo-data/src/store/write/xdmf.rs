//! XDMF: an XML file that points visualisation programs to the snapshots in an HDF5 file beside it.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use super::grid::{channel_names, origin_and_spacing};
use super::target::{appear, resolve, temporary_beside};
use crate::store::{Layout, TrajectoryFile};
use crate::{DataError, Description};

/// Path of the HDF5 file: the same name with the extension `.h5`.
pub(super) fn beside(companion: &Path) -> Result<PathBuf, DataError> {
    let target = companion.with_extension("h5");
    match target == companion {
        false => Ok(target),
        true => {
            let needed = "one that does not end in `.h5`: the numbers are stored in a file of that name";
            Err(bad_name(companion, needed))
        }
    }
}

/// Writes an XDMF file beside a file of layout `cfo`, which need not be copied.
///
/// # Errors
/// If the file has another layout, if it is not in the same folder under the same name with the extension `.h5`, or if
/// `companion` exists and may not be replaced.
pub fn describe_as_xdmf(file: &TrajectoryFile, companion: &Path, force: bool) -> Result<(), DataError> {
    let named = resolve(companion, force)?;
    if file.layout() != Layout::Cfo || !is_same(&beside(&named)?, file.path()) {
        let other = file.path().display();
        let needed = format!("the name of a file of layout `cfo` with another extension, not of `{other}`");
        return Err(bad_name(companion, needed));
    }
    appear(write(&named, file.path(), file)?, &named, force)
}

fn bad_name(companion: &Path, needed: impl Into<String>) -> DataError {
    DataError::argument("the name of the XDMF file", format!("`{}`", companion.display()), needed)
}

/// Whether two paths refer to the same file.
fn is_same(a: &Path, b: &Path) -> bool {
    matches!((fs_err::canonicalize(a), fs_err::canonicalize(b)), (Ok(a), Ok(b)) if a == b)
}

/// Writes the XML for the trajectories in `numbers`, a temporary file whose final path is `target`.
pub(super) fn write(
    companion: &Path,
    target: &Path,
    numbers: &TrajectoryFile,
) -> Result<TempPath, DataError> {
    let failed = |error| DataError::writing(companion, error);
    let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let temporary = temporary_beside(companion).map_err(failed)?;
    let output = fs_err::OpenOptions::new().write(true).open(&temporary).map_err(failed)?;
    let mut output = BufWriter::new(output);
    let rows = [numbers.len(), longest(numbers)?];
    let document = Document { description: numbers.description(), name, rows };
    document.start(&mut output).map_err(failed)?;
    for trajectory in 0..numbers.len() {
        let (times, parameters) = (numbers.times(trajectory)?, numbers.inputs(trajectory)?.parameters);
        document.trajectory(&mut output, trajectory, &times, &parameters).map_err(failed)?;
    }
    output.write_all(b"  </Domain>\n</Xdmf>\n").and_then(|()| output.flush()).map_err(failed)?;
    Ok(temporary)
}

fn longest(file: &TrajectoryFile) -> Result<usize, DataError> {
    let mut longest = 0;
    for trajectory in 0..file.len() {
        longest = longest.max(file.frame_count(trajectory)?);
    }
    Ok(longest)
}

struct Document<'a> {
    description: &'a Description,
    /// Name of the HDF5 file.
    name: String,
    /// Number of trajectories and of snapshots of its dataset.
    rows: [usize; 2],
}

impl Document<'_> {
    fn start(&self, output: &mut impl Write) -> io::Result<()> {
        let system = escaped(&self.description.system);
        writeln!(output, "<?xml version=\"1.0\" encoding=\"utf-8\"?>")?;
        writeln!(output, "<Xdmf Version=\"3.0\">\n  <Domain>")?;
        writeln!(output, "    <Information Name=\"system\" Value=\"{system}\"/>")
    }

    /// Writes a trajectory as a collection of images over time.
    fn trajectory(
        &self,
        output: &mut impl Write,
        trajectory: usize,
        times: &[f64],
        parameters: &[f64],
    ) -> io::Result<()> {
        let kind = r#"GridType="Collection" CollectionType="Temporal""#;
        writeln!(output, "    <Grid Name=\"trajectory {trajectory}\" {kind}>")?;
        for (name, value) in self.description.inputs.parameters.iter().zip(parameters) {
            writeln!(output, "      <Information Name=\"{}\" Value=\"{value}\"/>", escaped(name))?;
        }
        for (frame, time) in times.iter().enumerate() {
            self.image(output, trajectory, frame, *time)?;
        }
        writeln!(output, "    </Grid>")
    }

    fn image(&self, output: &mut impl Write, trajectory: usize, frame: usize, time: f64) -> io::Result<()> {
        let shape = self.description.shape;
        let size = joined(&shape.grid.padded());
        let ([x, y, z], [dx, dy, dz]) = origin_and_spacing(self.description);
        let three = "DataItem Dimensions=\"3\" NumberType=\"Float\" Precision=\"8\" Format=\"XML\"";
        writeln!(output, "      <Grid Name=\"trajectory {trajectory}\" GridType=\"Uniform\">")?;
        writeln!(output, "        <Time Value=\"{time}\"/>")?;
        writeln!(output, "        <Topology TopologyType=\"3DCoRectMesh\" Dimensions=\"{size}\"/>")?;
        writeln!(output, "        <Geometry GeometryType=\"ORIGIN_DXDYDZ\">")?;
        writeln!(output, "          <{three}>{z} {y} {x}</DataItem>")?;
        writeln!(output, "          <{three}>{dz} {dy} {dx}</DataItem>")?;
        writeln!(output, "        </Geometry>")?;
        for (channel, name) in channel_names(self.description).iter().enumerate() {
            let unit = self.description.channel_units.get(channel).filter(|unit| !unit.is_empty());
            writeln!(
                output,
                "        <Attribute Name=\"{}\" AttributeType=\"Scalar\" Center=\"Node\">",
                escaped(name)
            )?;
            if let Some(unit) = unit {
                writeln!(output, "          <Information Name=\"units\" Value=\"{}\"/>", escaped(unit))?;
            }
            self.numbers(output, [trajectory, frame, channel], &size)?;
            writeln!(output, "        </Attribute>")?;
        }
        writeln!(output, "      </Grid>")
    }

    /// Writes the position of one channel of one snapshot: start, stride, count.
    fn numbers(
        &self,
        output: &mut impl Write,
        [trajectory, frame, channel]: [usize; 3],
        size: &str,
    ) -> io::Result<()> {
        let shape = self.description.shape;
        let whole: Vec<usize> = self.rows.into_iter().chain(shape.dimensions()).collect();
        let rank = whole.len();
        let (mut first, mut count) = (vec![0; rank], whole.clone());
        (first[0], first[1], first[rank - 1]) = (trajectory, frame, channel);
        (count[0], count[1], count[rank - 1]) = (1, 1, 1);
        writeln!(output, "          <DataItem ItemType=\"HyperSlab\" Dimensions=\"{size}\">")?;
        writeln!(
            output,
            "            <DataItem Dimensions=\"3 {rank}\" NumberType=\"Int\" Format=\"XML\">{} {} {}</DataItem>",
            joined(&first),
            joined(&vec![1; rank]),
            joined(&count)
        )?;
        writeln!(
            output,
            "            <DataItem Dimensions=\"{}\" NumberType=\"Float\" Precision=\"4\" Format=\"HDF\">{}:/values</DataItem>",
            joined(&whole),
            escaped(&self.name)
        )?;
        writeln!(output, "          </DataItem>")
    }
}

fn joined(numbers: &[usize]) -> String {
    let texts: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    texts.join(" ")
}

/// Text for XML; characters that are not allowed are left out.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if c.is_control() => {}
            c => escaped.push(c),
        }
    }
    escaped
}
