package cli

import (
	"strconv"
	"time"
)

// How single values look in tables; "-" stands for one that is not there.

func timeCell(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func versionCell(v *int64) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatInt(*v, 10)
}

func textCell(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func optionalCell(s *string) string {
	if s == nil {
		return "-"
	}
	return textCell(*s)
}
