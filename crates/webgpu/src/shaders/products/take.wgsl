// Takes rows of inputs in the order of the weights' columns.
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@group(0) @binding(2) var<storage, read> orders: array<u32>;
@group(0) @binding(3) var<storage, read> table: array<u32>;
@group(0) @binding(4) var<storage, read_write> plan: array<u32>;

const NONE = 0xffffffffu;

// Where the inputs of a row and group begin, and their order.
struct Row {
    start: u32,
    order: u32,
}

// Row `index` of all: the groups of a row are beside one another.
fn row_of(index: u32) -> Row {
    var row = index / params.groups;
    var group = index % params.groups;
    if params.total_at != NONE {
        group = plan[params.groups_at + index];
        if params.rows_at != NONE {
            row = plan[params.rows_at + index];
        }
        return Row(row * params.x_row, table[params.table_at + group]);
    }
    let start = row * params.x_row + params.x_first + group * params.x_group;
    return Row(start, table[params.table_at + group]);
}

// Whether there is such a row.
fn is_row(index: u32) -> bool {
    return params.total_at == NONE || index < plan[params.total_at];
}

// Column `column` of a row; zero beyond the last.
fn input(row: Row, column: u32) -> f32 {
    if column >= params.cols {
        return 0.0;
    }
    if row.order != NONE {
        return x[row.start + orders[row.order + column]];
    }
    return x[row.start + column];
}
