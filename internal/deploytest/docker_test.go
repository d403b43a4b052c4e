package deploytest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	units "github.com/docker/go-units"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"sigs.k8s.io/yaml"
)

// load reads deploy/compose.yaml as Docker Compose does, including its schema and variables.
func load(t *testing.T, env types.Mapping) (*types.Project, error) {
	t.Helper()
	path := filepath.Join(root, "deploy/compose.yaml")
	return loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  filepath.Dir(path),
		ConfigFiles: []types.ConfigFile{{Filename: path}},
		Environment: maps.Clone(env), // the loader adds to it
	})
}

var passwords = types.Mapping{"PAGE_PASSWORD": "first", "GRAFANA_PASSWORD": "second"}

// Docker Compose accepts the file. It starts three identical hosts whose programs have enough time
// to end. No port is open to other machines, every image has a version, every program knows its
// memory limit, and every mounted file exists.
//
// Fails when a key is misspelled, a port is open to all, an image is the latest, a host has less
// time to end than it may need, or Prometheus does not read native histograms.
func TestCompose(t *testing.T) {
	t.Parallel()
	project, err := load(t, passwords)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := project.ServiceNames(), []string{"grafana", "host-1", "host-2", "host-3",
		"prometheus"}; !slices.Equal(got, want) {
		t.Errorf("its services are %v, want %v", got, want)
	}
	if c := project.Services["prometheus"].Command; !slices.Contains(c, "--enable-feature=native-histograms") {
		t.Errorf("Prometheus is started with %v", c)
	}
	drain := regexp.MustCompile(`DrainTimeout: (\d+) \* time.Second`).FindStringSubmatch(
		read(t, "examples/service/wiring.go"))
	if drain == nil || !strings.Contains(read(t, "service/service.go"), "returns at most 30 s later") {
		t.Fatal("how long the program may take to end is not known")
	}
	longest, _ := time.ParseDuration(drain[1] + "s")
	longest += 30 * time.Second
	open := map[string]string{}
	for name, s := range project.Services {
		pinned(t, s.Image)
		if !slices.Contains(s.CapDrop, "ALL") || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s may do what it need not: %v %v", name, s.CapDrop, s.SecurityOpt)
		}
		memory := s.Environment["GOMEMLIMIT"]
		if memory == nil || !s.ReadOnly {
			t.Fatalf("%s has no GOMEMLIMIT, or may write to its image", name)
		}
		soft, err := units.RAMInBytes(*memory)
		if err != nil || soft >= int64(s.MemLimit) || soft < int64(s.MemLimit)*3/4 {
			t.Errorf("%s may use %d bytes, and has GOMEMLIMIT=%s: %v", name, s.MemLimit, *memory, err)
		}
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" || open[p.Published] != "" {
				t.Errorf("%s: port %+v is open to other machines, or taken by %s", name, p, open[p.Published])
			}
			open[p.Published] = name
		}
		for _, v := range s.Volumes {
			if _, err := os.Stat(v.Source); v.Type == types.VolumeTypeBind && err != nil {
				t.Errorf("%s mounts what is not there: %v", name, err)
			}
		}
		if !strings.HasPrefix(name, "host-") {
			continue
		}
		if s.Hostname != name {
			t.Errorf("%s is %q", name, s.Hostname)
		}
		if s.StopGracePeriod == nil || time.Duration(*s.StopGracePeriod) <= longest {
			t.Errorf("%s is killed after %v", name, s.StopGracePeriod)
		}
		if len(s.Ports) != 1 || port(t, s.Command, "-addr") != fmt.Sprint(s.Ports[0].Target) {
			t.Errorf("%s serves at %s, and opens %+v", name, port(t, s.Command, "-addr"), s.Ports)
		}
		target := name + ":" + port(t, s.Command, "-addr")
		if !strings.Contains(read(t, "deploy/prometheus/prometheus.yml"), "- "+target+"\n") {
			t.Errorf("Prometheus does not scrape %s", target)
		}
		file := argument(t, s.Command, "-db")
		if *s.Environment["PAGE_PASSWORD"] != "first" || *s.Environment["TICKSLOT_STORE"] != "sqlite:"+file ||
			len(s.Volumes) != 1 || s.Volumes[0].Source != "shop" || s.Volumes[0].Target != filepath.Dir(file) {
			t.Errorf("%s has %v, and %v", name, s.Environment, s.Volumes)
		}
		checkDockerfile(t, s.Build)
	}
}

// Without passwords nothing starts, because a default would not be a secret.
//
// Fails when a password has a default.
func TestComposeWantsPasswords(t *testing.T) {
	t.Parallel()
	for name := range passwords {
		env := types.Mapping{}
		for other, value := range passwords {
			if other != name {
				env[other] = value
			}
		}
		if _, err := load(t, env); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// checkDockerfile checks the files from which a service is built.
func checkDockerfile(t *testing.T, build *types.BuildConfig) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(build.Context, "go.mod")); err != nil {
		t.Errorf("it is built from another folder than the root: %v", err)
	}
	if _, err := os.Stat(filepath.Join(build.Context, build.Dockerfile)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(build.Context, "examples", *build.Args["EXAMPLE"], "main.go")); err != nil {
		t.Errorf("it builds no example: %v", err)
	}
}

// The builder accepts the Dockerfile without warnings. Its image has no base image, contains only
// two programs and certificates, does not run as root, and probes the host itself.
//
// Fails when an instruction is misspelled, an image is the latest or has a shell, or USER is
// missing.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	parsed, err := parser.Parse(strings.NewReader(read(t, "deploy/Dockerfile")))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range parsed.Warnings {
		t.Error(w.Short)
	}
	stages, args, err := instructions.Parse(parsed.AST, linter.New(&linter.Config{
		Warn: func(rule, _, _, message string, at []parser.Range) { t.Errorf("%s: %s (%v)", rule, message, at) }}))
	if err != nil {
		t.Fatal(err)
	}
	if len(stages) != 2 || len(args) != 0 {
		t.Fatalf("%d stages and %d arguments before them", len(stages), len(args))
	}
	pinned(t, stages[0].BaseName)
	if stages[1].BaseName != "scratch" {
		t.Errorf("its programs stand on %s", stages[1].BaseName)
	}
	var health *instructions.HealthCheckCommand
	var user string
	var entry []string
	for _, c := range stages[1].Commands {
		switch c := c.(type) {
		case *instructions.HealthCheckCommand:
			health = c
		case *instructions.UserCommand:
			user = c.User
		case *instructions.EntrypointCommand:
			entry = c.CmdLine
		case *instructions.CopyCommand:
			if c.From != stages[0].Name {
				t.Errorf("it copies from %q", c.From)
			}
		case *instructions.RunCommand:
			t.Error("there is no shell to run something")
		}
	}
	if user != "65532:65532" {
		t.Errorf("it runs as %q", user)
	}
	if want := []string{"CMD", "/tickslot", "healthcheck", "--url",
		"http://127.0.0.1:8080/livez"}; health == nil || !slices.Equal(health.Health.Test, want) {
		t.Errorf("it is asked %+v, want %v", health, want)
	}
	if !slices.Equal(entry, []string{"/host"}) {
		t.Errorf("it starts %v", entry)
	}
}

// provisioning has all fields of the provisioned files that Grafana reads.
type provisioning struct {
	APIVersion  int `json:"apiVersion"`
	Datasources []struct {
		Name, Type, UID, Access, URL string
		IsDefault                    bool
		JSONData                     struct{ TimeInterval string }
	}
	Providers []struct {
		Name, Type string
		Options    struct{ Path string }
	}
}

// Grafana finds its Prometheus, and finds the dashboard where compose.yaml mounts it.
//
// Fails when a service, a port, a folder or the interval is changed in only one place.
func TestGrafanaIsProvisioned(t *testing.T) {
	t.Parallel()
	project, err := load(t, passwords)
	if err != nil {
		t.Fatal(err)
	}
	var p provisioning
	for _, file := range []string{"datasources/prometheus.yaml", "dashboards/tickslot.yaml"} {
		if err := yaml.UnmarshalStrict([]byte(read(t, "deploy/grafana/provisioning/"+file)), &p); err != nil {
			t.Error(err)
		}
	}
	if len(p.Datasources) != 1 || len(p.Providers) != 1 || p.APIVersion != 1 {
		t.Fatalf("%+v", p)
	}
	d := p.Datasources[0]
	if port := project.Services["prometheus"].Ports[0].Target; d.Type != "prometheus" || !d.IsDefault ||
		d.URL != fmt.Sprintf("http://prometheus:%d", port) {
		t.Errorf("its datasource is %+v", d)
	}
	if every := "scrape_interval: " + d.JSONData.TimeInterval + "\n"; !strings.Contains(
		read(t, "deploy/prometheus/prometheus.yml"), every) {
		t.Errorf("Prometheus does not scrape every %s", d.JSONData.TimeInterval)
	}
	mounted := map[string]string{}
	for _, v := range project.Services["grafana"].Volumes {
		mounted[v.Target] = filepath.Base(v.Source)
	}
	if mounted[p.Providers[0].Options.Path+"/tickslot.json"] != "tickslot.json" ||
		mounted["/etc/grafana/provisioning"] != "provisioning" {
		t.Errorf("the dashboard is looked for in %s, and what is mounted is %v", p.Providers[0].Options.Path, mounted)
	}
}
