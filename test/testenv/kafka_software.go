//go:build unix

package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/embedded/cachedir"
)

const (
	kafkaVersion = "4.3.1"
	oldestJava   = 17
	installHint  = "`make test` installs it on Debian, or: apt-get install openjdk-17-jre-headless maven"
)

// software is what it takes to run a broker.
type software struct {
	java string // the program
	jars string // the directory
}

// project has Kafka's server as its dependency, and a logger, without which
// the server says nothing.
const project = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>orderprojector</groupId>
  <artifactId>kafka-for-tests</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>` + kafkaVersion + `</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
`

// kafkaSoftware finds Java and, from the cache or else with Maven, Kafka.
func kafkaSoftware(ctx context.Context) (software, error) {
	java, err := findJava(ctx)
	if err != nil {
		return software{}, err
	}
	jars, err := cachedir.Fill(ctx, "kafka-"+kafkaVersion, fetchJars)
	if err != nil {
		return software{}, fmt.Errorf("fetching Apache Kafka %s: %w", kafkaVersion, err)
	}
	return software{java: java, jars: jars}, nil
}

var javaVersion = regexp.MustCompile(`version "(\d+)`)

func findJava(ctx context.Context) (string, error) {
	java, err := exec.LookPath("java")
	if home := os.Getenv("JAVA_HOME"); err != nil && home != "" {
		java, err = exec.LookPath(filepath.Join(home, "bin", "java"))
	}
	if err != nil {
		return "", fmt.Errorf("to run Kafka, Java %d or later is needed (%s): %w", oldestJava, installHint, err)
	}
	out, err := exec.CommandContext(ctx, java, "-version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("asking %s for its version (%s): %w", java, installHint, err)
	}
	m := javaVersion.FindSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("asking %s for its version (%s): it says %q", java, installHint, out)
	}
	if major, err := strconv.Atoi(string(m[1])); err != nil || major < oldestJava {
		return "", fmt.Errorf("%s is version %s, and Kafka needs %d or later (%s)", java, m[1], oldestJava, installHint)
	}
	return java, nil
}

func fetchJars(ctx context.Context, dir string) error {
	maven, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("to fetch it, Maven is needed (%s): %w", installHint, err)
	}
	work, err := os.MkdirTemp("", "orderprojector-maven-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := os.WriteFile(filepath.Join(work, "pom.xml"), []byte(project), 0o600); err != nil {
		return err
	}
	args := []string{"--batch-mode", "--quiet", "dependency:copy-dependencies",
		"-DoutputDirectory=" + dir, "-DincludeScope=runtime"}
	// Java takes the home directory from the user database and not from HOME,
	// and some users have none there.
	if home, err := os.UserHomeDir(); err == nil {
		args = append(args, "-Dmaven.repo.local="+filepath.Join(home, ".m2", "repository"))
	}
	cmd := exec.CommandContext(ctx, maven, args...)
	cmd.Dir = work
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return errors.Join(context.Cause(ctx), fmt.Errorf("running Maven: %w; its last lines:\n%s", err, tail(out.String(), 15)))
	}
	if _, err := os.Stat(filepath.Join(dir, "kafka_2.13-"+kafkaVersion+".jar")); err != nil {
		return fmt.Errorf("looking at what Maven brought: %w", err)
	}
	return nil
}
