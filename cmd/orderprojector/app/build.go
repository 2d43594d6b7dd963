package app

import (
	"runtime"
	"runtime/debug"
)

// Build describes the running binary.
type Build struct {
	Version   string `json:"version"`    // module version, or "(devel)"
	Revision  string `json:"revision"`   // commit, "" when unknown
	Time      string `json:"time"`       // commit time, "" when unknown
	Modified  bool   `json:"modified"`   // built from a changed checkout
	GoVersion string `json:"go_version"` //
	Platform  string `json:"platform"`
}

// ReadBuild reads what the Go tool chain recorded in the binary.
func ReadBuild() Build {
	b := Build{Version: "(devel)", GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}
