package compare

import "fmt"

// Limit is how many differences a comparison lists at most; what is wrong is
// clear by then.
const Limit = 1000

// Difference is one value that is not what the fold says. A whole row that
// is missing or not expected has an empty Column.
type Difference struct {
	Relation string // the SQL relation, e.g. "orders"
	Row      string // the row's key, readable
	Column   string
	Expected string
	Got      string
}

func (d Difference) String() string {
	if d.Column == "" {
		return fmt.Sprintf("%s: row %s is %s, expected %s", d.Relation, d.Row, d.Got, d.Expected)
	}
	return fmt.Sprintf("%s: %s of %s is %s, expected %s", d.Relation, d.Column, d.Row, d.Got, d.Expected)
}

// Report is the outcome of a comparison.
type Report struct {
	// Differences are grouped by relation and sorted by row; there are at most Limit of them.
	Differences []Difference
	// Total counts all differences, also those beyond Limit.
	Total int
	// Rows counts the rows that were compared, by relation.
	Rows map[string]int
}

// Equal reports whether nothing differs.
func (r *Report) Equal() bool { return r.Total == 0 }

func (r *Report) add(d Difference) {
	r.Total++
	if len(r.Differences) < Limit {
		r.Differences = append(r.Differences, d)
	}
}

// row compares the columns of one row.
type row struct {
	report   *Report
	relation string
	key      string
}

func column[T comparable](r row, name string, expected, got T) {
	if expected != got {
		r.report.add(Difference{r.relation, r.key, name, show(expected), show(got)})
	}
}

func show(v any) string {
	if text, ok := v.(string); ok {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprint(v)
}
