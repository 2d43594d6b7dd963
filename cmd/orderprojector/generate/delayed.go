package generate

// late is a record that waits until due records were sent.
type late struct {
	due    int
	tie    int // first planned, first sent
	record Record
}

// delayed is a heap of late records.
type delayed []*late

func (d delayed) Len() int { return len(d) }

func (d delayed) Less(i, j int) bool {
	if d[i].due != d[j].due {
		return d[i].due < d[j].due
	}
	return d[i].tie < d[j].tie
}

func (d delayed) Swap(i, j int) { d[i], d[j] = d[j], d[i] }
func (d *delayed) Push(x any)   { *d = append(*d, x.(*late)) }

func (d *delayed) Pop() any {
	old := *d
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*d = old[:len(old)-1]
	return x
}
