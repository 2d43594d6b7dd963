// Package architecture checks the shape of the code.
package architecture

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/orderprojector/orderprojector/"

// layers, innermost first: a package may import its own layer and those before
// it. The longest prefix that matches counts.
var layers = []struct {
	name     string
	packages []string
	// bans are imports that the layer must not have, beyond outer layers.
	bans []string
}{
	{"domain", []string{"domain/"}, []string{"github.com/jackc/pgx", "github.com/twmb/franz-go", "github.com/prometheus", "log/slog", "os", "net"}},
	{"schema", []string{"migrations"}, nil},
	// projection/effects, projection/loyalty and projection/notifications belong to it, too.
	{"projection", []string{"projection"}, []string{"github.com/jackc/pgx", "github.com/twmb/franz-go", "net/http"}},
	{"relay", []string{"outbox/relay"}, []string{"github.com/jackc/pgx", "github.com/twmb/franz-go"}},
	{"adapters", []string{"projection/pgstore", "projection/reference/compare", "projection/verify", "projection/rebuild", "kafkaio", "outbox", "projection/webhook"}, nil},
	{"program", []string{"cmd/", "examples/"}, nil},
	{"tests", []string{"projection/projectiontest", "kafkaio/kafkatest", "test/"}, nil},
}

func layerOf(pkg string) int {
	best, length := -1, 0
	for i, l := range layers {
		for _, prefix := range l.packages {
			if strings.HasPrefix(pkg, prefix) && len(prefix) > length {
				best, length = i, len(prefix)
			}
		}
	}
	return best
}

// TestImportsPointInwards holds every package to the layers: domain, then
// projection, then adapters, then the program. Test code is imported by tests only.
func TestImportsPointInwards(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := 0
	for dec := json.NewDecoder(bytes.NewReader(out)); ; packages++ {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		pkg := strings.TrimPrefix(p.ImportPath, module)
		layer := layerOf(pkg)
		if layer < 0 {
			t.Errorf("%s belongs to no layer", pkg)
			continue
		}
		for _, imported := range p.Imports {
			if inner, ours := strings.CutPrefix(imported, module); ours && layerOf(inner) > layer {
				t.Errorf("%s (%s) imports %s (%s)", pkg, layers[layer].name, inner, layers[layerOf(inner)].name)
			}
			if strings.HasPrefix(pkg, "kafkaio") && imported == module+"projection/pgstore" {
				t.Errorf("%s imports the store", pkg)
			}
			if slices.ContainsFunc(layers[layer].bans, func(ban string) bool { return imported == ban || strings.HasPrefix(imported, ban+"/") }) {
				t.Errorf("%s (%s) imports %s", pkg, layers[layer].name, imported)
			}
		}
	}
	if packages < 10 {
		t.Errorf("only %d packages were looked at", packages)
	}
}
