package projection

// Gate says whether records may be consumed now. It is safe for concurrent use.
type Gate interface {
	// Closed returns why they may not, nil when they may. changed is closed once
	// the answer may be another one.
	Closed() (changed <-chan struct{}, why error)
}
