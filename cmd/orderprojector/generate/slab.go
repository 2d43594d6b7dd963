package generate

const slabSize = 256 << 10

// slab hands out many small byte slices from few allocations. A slice keeps
// its slab alive, and nothing is ever written twice.
type slab struct{ free []byte }

// room returns an empty slice to append about n bytes to.
func (s *slab) room(n int) []byte {
	if cap(s.free)-len(s.free) < n {
		s.free = make([]byte, 0, slabSize)
	}
	return s.free[len(s.free):]
}

// take keeps what was appended to room's slice and returns it.
func (s *slab) take(text []byte) []byte {
	if free := s.free[len(s.free):cap(s.free)]; len(free) >= len(text) && len(text) > 0 && &free[0] == &text[0] {
		s.free = s.free[:len(s.free)+len(text)]
	}
	return text[:len(text):len(text)]
}
