package notifications_test

import (
	"strings"
	"testing"

	"github.com/orderprojector/orderprojector/projection/notifications"
)

// A key can be a header and a part of a URL, whatever the event ID, and no two event IDs have the same.
func TestKeyOf(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, id := range []string{
		"0198c0de-0000-7000-8000-000000000001", "a.b_c", "a b", "ü", "a/b", "a\nb", ".", "..", "", strings.Repeat("x", 200), notifications.KeyOf("ü"),
	} {
		key := notifications.KeyOf(id)
		if key == "" || strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "" || strings.Trim(key, ".") == "" {
			t.Errorf("%q has the key %q", id, key)
		}
		if other, taken := seen[key]; taken {
			t.Errorf("%q and %q have the same key", id, other)
		}
		seen[key] = id
	}
	if id := "0198c0de-0000-7000-8000-000000000001"; notifications.KeyOf(id) != id {
		t.Errorf("a plain ID has the key %q", notifications.KeyOf(id))
	}
}
