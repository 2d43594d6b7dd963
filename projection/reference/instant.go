package reference

import (
	"regexp"
	"strings"
	"time"
)

var rfc3339 = regexp.MustCompile(
	`^([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]+))?([Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])$`)

// parseInstant reads an RFC 3339 time with zone, in the years 1970 to 9999
// UTC, truncated to the microsecond.
func parseInstant(text string) (time.Time, bool) {
	part := rfc3339.FindStringSubmatch(text)
	if part == nil {
		return time.Time{}, false
	}
	date, clock, fraction, zone := part[1], part[2], part[3], part[4]
	// The layout checks the calendar; time.Parse refuses days and hours that do not exist.
	t, err := time.Parse("2006-01-02T15:04:05Z07:00", date+"T"+clock+strings.ToUpper(zone))
	if err != nil {
		return time.Time{}, false
	}
	micros := 0
	for i := range 6 {
		micros *= 10
		if i < len(fraction) {
			micros += int(fraction[i] - '0')
		}
	}
	t = t.UTC().Add(time.Duration(micros) * time.Microsecond)
	if year := t.Year(); year < 1970 || year > 9999 {
		return time.Time{}, false
	}
	return t, true
}
