package config

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the table into docs/configuration.md")

const (
	docsPath  = "../../../docs/configuration.md"
	docsBegin = "<!-- settings: written by go test ./cmd/orderprojector/config -run Docs -update -->\n"
	docsEnd   = "<!-- end of settings -->\n"
)

// TestDocsListEverySetting keeps the page true to the program.
func TestDocsListEverySetting(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), docsBegin)
	have, after, ok2 := strings.Cut(rest, docsEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the settings", docsPath)
	}
	want := settingsTable()
	if *update {
		if err := os.WriteFile(docsPath, []byte(before+docsBegin+want+docsEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("%s differs (-want +got; -update rewrites it):\n%s", docsPath, diff)
	}
}

func settingsTable() string {
	var b strings.Builder
	b.WriteString("\n| Flag and file key | Environment | Default | Meaning |\n|---|---|---|---|\n")
	c := Default()
	for _, s := range c.settings() {
		name, env, value := "`--"+s.name+"`", "`"+s.env+"`", s.value.String()
		if s.secret {
			name = "`" + s.name + "` (no flag)"
		}
		if s.fileVariant {
			name += ", `--" + s.name + fileSuffix + "`"
			env += ", `" + s.env + "_FILE`"
		}
		switch {
		case s.name == "writers":
			value = "2 to 4, by CPUs"
		case value != "":
			value = "`" + value + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, env, value, strings.ReplaceAll(s.usage, "|", `\|`))
	}
	b.WriteString("\n")
	return b.String()
}
