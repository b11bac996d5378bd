// Package monitoring has a real Prometheus scrape keelson under load, and looks whether the expressions of rules and dashboards find
// what they are about.
//
// With MIXIN=FILE it evaluates a rendered kubernetes-mixin too (a PrometheusRule or a file of rules): every series that its rules for
// API servers select. With -update it draws docs/monitoring.svg from what was scraped.
package monitoring

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"keelson/e2e/controlplane"
	"keelson/e2e/internal/process"
)

var update = flag.Bool("update", false, "draw docs/monitoring.svg")

const (
	deployed = "../../deploy/monitoring/"
	// scrapes is how often the server is scraped; loaded is how long it is under load.
	scrapes, loaded = time.Second, 25 * time.Second
	// interval replaces Grafana's.
	interval = "10s"
)

// promtool runs it and fails with what it says.
func promtool(t *testing.T, stdin []byte, args ...string) {
	t.Helper()
	command := exec.Command(controlplane.Binary(t, "PROMTOOL", ".tools/bin/promtool"), args...)
	command.Stdin = bytes.NewReader(stdin)
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestRulesAndConfiguration(t *testing.T) {
	promtool(t, nil, "check", "rules", deployed+"rules.yaml")
	promtool(t, nil, "check", "config", "--syntax-only", scrapeConfiguration(t))
	for _, alert := range rules(t, deployed+"rules.yaml") {
		if alert.Alert == "" {
			continue
		}
		if alert.Annotations["summary"] == "" || alert.Annotations["description"] == "" || alert.Labels["severity"] == "" || alert.For == "" {
			t.Errorf("%s has no summary, description, severity or duration", alert.Alert)
		}
	}
}

// scrapeConfiguration is a copy of deploy/monitoring/scrape.yaml without the discovery in a cluster, which Debian's Prometheus does
// not have.
func scrapeConfiguration(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(deployed + "scrape.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := yaml.UnmarshalStrict(text, &config); err != nil {
		t.Fatal(err)
	}
	job := config["scrape_configs"].([]any)[0].(map[string]any)
	if job["job_name"] != "apiserver" || job["kubernetes_sd_configs"] == nil {
		t.Errorf("the job that rules select by: %v", job)
	}
	delete(job, "kubernetes_sd_configs")
	job["static_configs"] = []any{map[string]any{"targets": []string{"localhost:6443"}}}
	delete(config, "rule_files")
	if text, err = yaml.Marshal(config); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "scrape.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// rule is a rule of Prometheus.
type rule struct {
	Alert, Record, Expr, For string
	Labels, Annotations      map[string]string
}

// rules are those of a file, or of a PrometheusRule.
func rules(t *testing.T, path string) []rule {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	type groups []struct{ Rules []rule }
	var file struct {
		Groups groups
		Spec   struct{ Groups groups }
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, group := range append(file.Groups, file.Spec.Groups...) {
		all = append(all, group.Rules...)
	}
	return all
}

// prometheus is one that runs.
type prometheus struct{ url string }

// scrape starts a Prometheus that scrapes the server with a certificate of its administrator.
func scrape(t *testing.T, plane *controlplane.Plane) *prometheus {
	t.Helper()
	folder := t.TempDir()
	ports, err := process.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	admin := rest.CopyConfig(plane.Admin)
	if err := rest.LoadTLSFiles(admin); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"ca": admin.CAData, "cert": admin.CertData, "key": admin.KeyData}
	for name, bytes := range files {
		if err := os.WriteFile(filepath.Join(folder, name), bytes, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ours, err := filepath.Abs(deployed + "rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`global: {scrape_interval: %s, evaluation_interval: 1s}
rule_files: [%s]
scrape_configs:
- job_name: apiserver
  scheme: https
  tls_config: {ca_file: ca, cert_file: cert, key_file: key}
  static_configs: [{targets: ["%s"]}]
`, scrapes, ours, strings.TrimPrefix(plane.URL, "https://"))
	if err := os.WriteFile(filepath.Join(folder, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	listen := fmt.Sprintf("127.0.0.1:%d", ports[0])
	started, err := process.Start(filepath.Join(folder, "log"), folder, controlplane.Binary(t, "PROMETHEUS", ".tools/bin/prometheus"),
		"--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address="+listen, "--log.level=warn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(started.Kill)
	p := &prometheus{url: "http://" + listen}
	if err := started.Await(t.Context(), func() bool { return process.Answers(p.url + "/-/ready") }); err != nil {
		t.Fatalf("prometheus: %v", err)
	}
	return p
}

// result is one series of an answer.
type result struct {
	Metric map[string]string
	Value  [2]any
	Values [][2]any
}

// ask evaluates an expression now, or over the last while.
func (p *prometheus) ask(ctx context.Context, expr string, last time.Duration) ([]result, error) {
	query := url.Values{"query": {expr}}
	path := "/api/v1/query"
	if last > 0 {
		now := time.Now()
		path += "_range"
		query.Set("start", fmt.Sprint(now.Add(-last).Unix()))
		query.Set("end", fmt.Sprint(now.Unix()))
		query.Set("step", "1")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct{ Result []result }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("%s: %s", expr, answer.Error)
	}
	return answer.Data.Result, nil
}

// present fails unless the expression has a value.
func (p *prometheus) present(t *testing.T, what, expr string) {
	t.Helper()
	found, err := p.ask(t.Context(), expr, 0)
	if err != nil {
		t.Errorf("%s: %v", what, err)
	} else if len(found) == 0 {
		t.Errorf("%s: no data for %s", what, expr)
	}
}

func TestScrapedUnderLoad(t *testing.T) {
	plane := controlplane.ForTest(t, "etcd", true)
	if err := plane.Start(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	prometheus := scrape(t, plane)
	load(t, plane.Admin, loaded)

	t.Run("exposition", func(t *testing.T) {
		for _, path := range []string{"/metrics", "/metrics/slis"} {
			exposed(t, page(t, plane, path))
		}
	})
	t.Run("rules", func(t *testing.T) {
		for _, rule := range rules(t, deployed+"rules.yaml") {
			if rule.Record != "" {
				prometheus.present(t, rule.Record, rule.Record)
			}
			for _, selector := range selectors(rule.Expr) {
				prometheus.present(t, rule.Alert+rule.Record, selector)
			}
		}
		firing, err := prometheus.ask(t.Context(), `ALERTS{alertname=~"Keelson.*", alertstate="firing"}`, 0)
		if err != nil || len(firing) > 0 {
			t.Errorf("alerts of a healthy server: %v %v", firing, err)
		}
	})
	t.Run("series of kubernetes-mixin", func(t *testing.T) { series(t, prometheus) })
	if path := os.Getenv("MIXIN"); path != "" {
		t.Run("kubernetes-mixin", func(t *testing.T) { mixin(t, prometheus, path) })
	}
	panels := dashboard(t)
	t.Run("dashboard", func(t *testing.T) {
		for _, panel := range panels {
			for _, target := range panel.Targets {
				prometheus.present(t, panel.Title, filled(target.Expr))
			}
		}
	})
	if *update && !t.Failed() {
		if err := draw(t.Context(), prometheus, panels, "../../docs/monitoring.svg"); err != nil {
			t.Error(err)
		}
	}
}

// exposed fails unless a page can be read, and what promtool says of names is about upstream's, which stay as they are.
func exposed(t *testing.T, page []byte) {
	t.Helper()
	const onlyLint = 3
	command := exec.Command(controlplane.Binary(t, "PROMTOOL", ".tools/bin/promtool"), "check", "metrics")
	command.Stdin = bytes.NewReader(page)
	out, err := command.CombinedOutput()
	if err != nil && command.ProcessState.ExitCode() != onlyLint {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
	for _, line := range strings.Split(string(out), "\n") {
		if strings.HasPrefix(line, "keelson_") {
			t.Error(line)
		}
	}
}

// page is one of the server's.
func page(t *testing.T, plane *controlplane.Plane, path string) []byte {
	t.Helper()
	client, err := clientOf(plane.Admin)
	if err != nil {
		t.Fatal(err)
	}
	text, err := client.RESTClient().Get().AbsPath(path).DoRaw(t.Context())
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return text
}

// selectorPattern finds the names of series with what they are filtered by. Functions and words are not followed by braces.
var selectorPattern = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*\{[^}]*\}`)

// selectors are those of an expression.
func selectors(expr string) []string { return selectorPattern.FindAllString(expr, -1) }

// series looks for what series.txt lists.
func series(t *testing.T, prometheus *prometheus) {
	text, err := os.ReadFile("series.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		line, reason, _ := strings.Cut(line, " # ")
		selector, labels, _ := strings.Cut(line, " by ")
		absent := strings.HasPrefix(selector, "- ")
		found, err := prometheus.ask(t.Context(), strings.TrimPrefix(selector, "- "), 0)
		switch {
		case err != nil:
			t.Error(err)
		case absent:
			t.Logf("%d of %s: %s", len(found), selector[2:], reason)
		case len(found) == 0:
			t.Errorf("no data for %s", selector)
		}
		for _, label := range strings.Split(labels, ", ") {
			if _, ok := labelOf(found, label); label != "" && len(found) > 0 && !ok {
				t.Errorf("%s has no label %s", selector, label)
			}
		}
	}
}

func labelOf(found []result, label string) (string, bool) {
	for _, one := range found {
		if value, ok := one.Metric[label]; ok {
			return value, true
		}
	}
	return "", false
}

// needsFaults are series that a healthy server under load does not have, with the reason.
var needsFaults = map[string]string{
	"aggregator_unavailable_apiservice_total": "counts extension servers that fail",
	"apiserver_request_terminations_total":    "counts requests that overload or a timeout ends",
	"rest_client_requests_total":              "counts requests to webhooks, and there are none",
	`code=~"3.."`:                             "nothing that is asked for redirects",
	`code=~"5.."`:                             "a healthy server has none",
}

// mixin looks for every series that a rendered kubernetes-mixin selects of the job, and evaluates every expression.
func mixin(t *testing.T, prometheus *prometheus, path string) {
	expressions, found, silent := 0, 0, 0
	for _, rule := range rules(t, path) {
		own := regexp.MustCompile(`job="apiserver"|apiserver_request`).MatchString(rule.Expr)
		if !own {
			continue
		}
		expressions++
		if _, err := prometheus.ask(t.Context(), rule.Expr, 0); err != nil {
			t.Errorf("%s%s: %v", rule.Alert, rule.Record, err)
		}
	next:
		for _, selector := range selectors(rule.Expr) {
			// What other rules record is there when they are.
			if strings.Contains(strings.SplitN(selector, "{", 2)[0], ":") {
				continue
			}
			for part, reason := range needsFaults {
				if strings.Contains(selector, part) {
					t.Logf("%s%s: %s: %s", rule.Alert, rule.Record, selector, reason)
					silent++
					continue next
				}
			}
			prometheus.present(t, rule.Alert+rule.Record, selector)
			found++
		}
	}
	t.Logf("%d expressions; %d selectors with data, %d that need faults", expressions, found, silent)
	if expressions == 0 {
		t.Errorf("%s has no rules for API servers", path)
	}
}
