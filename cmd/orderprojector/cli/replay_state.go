package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/progress"
	"github.com/orderprojector/orderprojector/projection"
)

// replayState is the file of --resume: what was asked for and how far it has come.
type replayState struct {
	Topic      string          `json:"topic"`
	TopicID    string          `json:"topic_id"`
	Group      string          `json:"group"`
	Execute    bool            `json:"execute"`
	Orders     []string        `json:"orders,omitempty"`
	Partitions []replayStretch `json:"partitions"`
	path       string
	saved      time.Time
}

// loadReplayState reads the file; nil when there is none.
func loadReplayState(path string) (*replayState, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the state of the replay: %w", err)
	}
	state := &replayState{path: path}
	if err := json.Unmarshal(data, state); err != nil {
		return nil, fmt.Errorf("reading the state of the replay in %s: %w", path, err)
	}
	return state, nil
}

// check refuses to go on with something else than what the file is of.
func (s *replayState) check(now *replayState) error {
	if s.Topic != now.Topic || s.TopicID != now.TopicID || s.Group != now.Group || s.Execute != now.Execute || !slices.Equal(s.Orders, now.Orders) {
		return usageError("%s is the state of another replay (topic %s, group %s, execute %t): remove it, or ask for the same", s.path, s.Topic, s.Group, s.Execute)
	}
	return nil
}

// stretches are what is left to do, on the log as it is named now.
func (s *replayState) stretches(log projection.TopicPartition) []replayStretch {
	plan := slices.Clone(s.Partitions)
	for i := range plan {
		plan[i].log = log
		plan[i].log.Partition = plan[i].Partition
		plan[i].From = plan[i].Next
	}
	return plan
}

// save writes the file, at most once a second unless it has to be now.
func (s *replayState) save(now bool) error {
	if s.path == "" || !now && time.Since(s.saved) < time.Second {
		return nil
	}
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.path+".new", data, 0o600); err != nil {
		return fmt.Errorf("writing the state of the replay: %w", err)
	}
	if err := os.Rename(s.path+".new", s.path); err != nil {
		return fmt.Errorf("writing the state of the replay: %w", err)
	}
	s.saved = time.Now()
	return nil
}

// remove takes the file away once all is done.
func (s *replayState) remove() error {
	if s.path == "" {
		return nil
	}
	if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the state of the replay: %w", err)
	}
	return nil
}

// track returns what a replay tells its progress: the state remembers it, is saved now and then, and is shown. saving gets what
// went wrong with that.
func (s *replayState) track(line *progress.Line, saving *error) func(projection.ReplayProgress) {
	return func(p projection.ReplayProgress) {
		for i := range s.Partitions {
			if s.Partitions[i].Partition == p.Partition {
				s.Partitions[i].Next = p.Next
			}
		}
		*saving = errors.Join(*saving, s.save(false))
		if line.Due() {
			line.Update(progressText("replayed", p.Done, p.Total, p.Elapsed))
		}
	}
}
