package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
)

// load loads from a file's content, an environment and arguments.
func load(t *testing.T, file string, env map[string]string, args ...string) (config.Config, error) {
	t.Helper()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	fs.String(config.FileFlag, "", "")
	config.AddFlags(fs)
	if file != "" {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", path)
	}
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return config.Load(config.Sources{Flags: fs, LookupEnv: lookup(env)})
}

func lookup(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	}
}

func TestFlagsWinOverEnvironmentOverFileOverDefaults(t *testing.T) {
	t.Parallel()
	c, err := load(t, `
topic: from-file
group: from-file
instance-id: from-file
writers: 7
cache-bytes: 1MiB
shutdown-grace: 3s
kafka-bootstrap-servers: [a:1, "b:2"]
allow-newer-schema: true
`,
		map[string]string{"ORDERPROJECTOR_TOPIC": "from-env", "ORDERPROJECTOR_GROUP": "from-env", "ORDERPROJECTOR_INSTANCE_ID": ""},
		"--topic", "from-flag")
	if err != nil {
		t.Fatal(err)
	}
	type view struct {
		Topic, Group, Instance, Protocol string
		Writers                          int
		Cache                            config.ByteSize
		Grace                            time.Duration
		Servers                          config.List
		Newer                            bool
	}
	got := view{c.Kafka.Topic, c.Kafka.Group, c.Kafka.InstanceID, c.Kafka.GroupProtocol, c.Database.Writers,
		c.Projection.CacheBytes, c.ShutdownGrace, c.Kafka.BootstrapServers, c.Database.AllowNewerSchema}
	want := view{"from-flag", "from-env", "from-file", "classic", 7, 1 << 20, 3 * time.Second, config.List{"a:1", "b:2"}, true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for name, prefix := range map[string]string{
		"topic": "flag --topic", "group": "environment ORDERPROJECTOR_GROUP", "instance-id": "file ", "group-protocol": "default",
	} {
		if origin := string(c.Origin(name)); !strings.HasPrefix(origin, prefix) {
			t.Errorf("origin of %s is %q, want %q", name, origin, prefix)
		}
	}
}

func TestTheFileIsNamedByTheEnvironmentToo(t *testing.T) {
	t.Parallel()
	c, err := config.Load(config.Sources{
		LookupEnv: lookup(map[string]string{config.FileEnv: "/etc/op.yaml"}),
		ReadFile: func(path string) ([]byte, error) {
			if path != "/etc/op.yaml" {
				return nil, os.ErrNotExist
			}
			return []byte("# nothing but\ntopic: t\n"), nil
		},
	})
	if err != nil || c.Kafka.Topic != "t" {
		t.Errorf("topic %q, error %v", c.Kafka.Topic, err)
	}
}

func TestEverySettingIsReadFromEverySourceAlike(t *testing.T) {
	t.Parallel()
	samples := map[string]string{
		"int": "3", "duration": "7s", "size": "2MiB", "bool": "true", "level": "debug",
	}
	defaults := config.Default()
	for _, v := range defaults.Values() {
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		config.AddFlags(fs)
		sample, want := "some:1", "some:1"
		if flag := fs.Lookup(v.Name); flag != nil {
			if s, ok := samples[flag.Value.Type()]; ok {
				sample, want = s, s
			}
			if flag.Value.Type() == "url" {
				sample, want = "postgres://u:p@h/d", "postgres://u:xxxxx@h/d"
			}
			fromFlag, err := load(t, "", nil, "--"+v.Name+"="+sample)
			check(t, "flag", v.Name, want, fromFlag, err)
		} else {
			want = "[redacted]"
		}
		fromEnv, err := load(t, "", map[string]string{v.Env: sample})
		check(t, "environment", v.Name, want, fromEnv, err)
		fromFile, err := load(t, v.Name+": \""+sample+"\"\n", nil)
		check(t, "file", v.Name, want, fromFile, err)
	}
}

func check(t *testing.T, source, name, want string, c config.Config, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s from %s: %v", name, source, err)
	}
	for _, v := range c.Values() {
		if v.Name == name && (v.Value != want || !strings.HasPrefix(string(v.Origin), source)) {
			t.Errorf("%s from %s: %q (origin %s), want %q", name, source, v.Value, v.Origin, want)
		}
	}
}

func TestSecretsCanComeFromFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("pass word\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	fromEnv, err := load(t, "", map[string]string{"KAFKA_SASL_PASSWORD_FILE": path})
	if err != nil || fromEnv.Kafka.SASL.Password.Reveal() != "pass word" {
		t.Errorf("environment: %v", err)
	}
	fromFile, err := load(t, "kafka-sasl-password-file: "+path, map[string]string{"KAFKA_SASL_PASSWORD": "stronger"})
	if err != nil || fromFile.Kafka.SASL.Password.Reveal() != "stronger" {
		t.Errorf("a file variant in a weaker source: %v", err)
	}
	fromFlag, err := load(t, "database-url: weaker", nil, "--database-url-file", path)
	if err != nil || fromFlag.Database.URL.Reveal() != "pass word" {
		t.Errorf("flag: %v", err)
	}
	_, err = load(t, "", map[string]string{"KAFKA_SASL_PASSWORD_FILE": path, "KAFKA_SASL_PASSWORD": "canary"})
	expectProblem(t, err, "kafka-sasl-password", "given directly and as a file too")
	if strings.Contains(err.Error(), "canary") {
		t.Error("the error shows the password")
	}
	_, err = load(t, "", map[string]string{"DATABASE_URL_FILE": path + "-missing"})
	expectProblem(t, err, "database-url-file", "cannot be read")
}

func TestWhatCannotBeReadIsRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		file string
		env  map[string]string
		want []string
	}{
		"unknown key":         {file: "topik: x\nwriters: 3", want: []string{"line 1", `unknown key "topik"`}},
		"key with underscore": {file: "cache_bytes: 3", want: []string{"did you mean cache-bytes?"}},
		"key without prefix":  {file: "bootstrap-servers: a:1", want: []string{"did you mean kafka-bootstrap-servers?"}},
		"repeated key":        {file: "topic: a\ntopic: b", want: []string{"topic"}},
		"nested value":        {file: "topic: {a: b}", want: []string{"topic", "not a plain value"}},
		"no value":            {file: "topic:", want: []string{"topic", "no value"}},
		"list at the top":     {file: "- a", want: []string{"not a mapping"}},
		"two documents":       {file: "topic: a\n---\ntopic: b", want: []string{"more than one document"}},
		"not YAML":            {file: "topic: [", want: []string{"config"}},
		"bad number":          {file: "writers: many", want: []string{"writers", `"many" is not a whole number`, "file "}},
		"bad duration":        {env: map[string]string{"ORDERPROJECTOR_SHUTDOWN_GRACE": "10"}, want: []string{"shutdown-grace", `"10" is not a duration`, "environment ORDERPROJECTOR_SHUTDOWN_GRACE"}},
		"bad size":            {env: map[string]string{"ORDERPROJECTOR_CACHE_BYTES": "9999999999GiB"}, want: []string{"cache-bytes", "is not a size"}},
		"bad level":           {env: map[string]string{"ORDERPROJECTOR_LOG_LEVEL": "loud"}, want: []string{"log-level", "loud"}},
		"two at once":         {file: "writers: x\ncache-bytes: y", want: []string{"writers", "cache-bytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, tc.file, tc.env)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not contain %q", err, want)
				}
			}
		})
	}
	_, err := load(t, "", nil, "--config", "/nonexistent/x.yaml")
	expectProblem(t, err, "config", "/nonexistent/x.yaml")
}

func expectProblem(t *testing.T, err error, name, contains string) {
	t.Helper()
	var problem *config.Error
	if !errors.As(err, &problem) || problem.Name != name || !strings.Contains(problem.Error(), contains) {
		t.Errorf("error %v, want one of %s with %q", err, name, contains)
	}
}
