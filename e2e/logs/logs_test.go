// Package logs reads what keelson logs as the pipelines of operators do: the readers here read lines of the real klog, and of
// component-base's JSON, as well.
package logs

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	logsjson "k8s.io/component-base/logs/json"
	"k8s.io/klog/v2/textlogger"

	"keelson/e2e/controlplane"
	"keelson/e2e/internal/process"
)

// entry is a line that has been read.
type entry struct {
	severity, file, message string
	values                  map[string]any
}

// header is klog's: severity, month and day, time, thread or process, file and line (klog formatHeader).
var header = regexp.MustCompile(`^([IWEF])(\d{2})(\d{2}) (\d{2}:\d{2}:\d{2}\.\d{6}) +(\d+) ([^ :]+):(\d+)\] (.*)$`)

// readText reads klog's text: a plain message, or a quoted one with keys and values.
func readText(text string) (entry, error) {
	parts := header.FindStringSubmatch(text)
	if parts == nil {
		return entry{}, fmt.Errorf("no header of klog: %q", text)
	}
	if _, err := time.Parse("0102 15:04:05.000000", parts[2]+parts[3]+" "+parts[4]); err != nil {
		return entry{}, err
	}
	line := entry{severity: parts[1], file: parts[6], message: parts[8], values: map[string]any{}}
	quoted, err := strconv.QuotedPrefix(parts[8])
	if err != nil {
		return line, nil
	}
	rest := parts[8][len(quoted):]
	if line.message, err = strconv.Unquote(quoted); err != nil {
		return entry{}, err
	}
	for rest != "" {
		key, value, ok := strings.Cut(strings.TrimPrefix(rest, " "), "=")
		if !ok || key == "" || strings.ContainsAny(key, " \"") {
			return entry{}, fmt.Errorf("no key and value: %q in %q", rest, text)
		}
		if quoted, err = strconv.QuotedPrefix(value); err == nil {
			rest = value[len(quoted):]
			if line.values[key], err = strconv.Unquote(quoted); err != nil {
				return entry{}, err
			}
			continue
		}
		value, rest, _ = strings.Cut(value, " ")
		line.values[key] = value
		if rest != "" {
			rest = " " + rest
		}
	}
	return line, nil
}

// readJSON reads the JSON of component-base: ts in milliseconds, caller, msg, v unless it is an error, then keys and values.
func readJSON(text string) (entry, error) {
	fields := map[string]any{}
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		return entry{}, fmt.Errorf("%w: %q", err, text)
	}
	at, ok := fields["ts"].(float64)
	if age := time.Since(time.UnixMicro(int64(at * 1000))); !ok || age < -time.Minute || age > time.Hour {
		return entry{}, fmt.Errorf("ts of %q", text)
	}
	caller, ok := fields["caller"].(string)
	if !ok || !regexp.MustCompile(`^[^/]+/[^/:]+:\d+$`).MatchString(caller) {
		return entry{}, fmt.Errorf("caller of %q", text)
	}
	message, ok := fields["msg"].(string)
	if !ok {
		return entry{}, fmt.Errorf("msg of %q", text)
	}
	line := entry{severity: "I", file: caller, message: message, values: fields}
	switch v, ok := fields["v"]; {
	case !ok:
		line.severity = "E"
	default:
		if number, ok := v.(float64); !ok || number != float64(int(number)) || number < 0 {
			return entry{}, fmt.Errorf("v of %q", text)
		}
	}
	for _, name := range []string{"ts", "caller", "msg", "v"} {
		delete(fields, name)
	}
	return line, nil
}

// nothing is a writer that need not be flushed.
type nothing struct{ io.Writer }

func (nothing) Sync() error { return nil }

// TestReaders shows that the readers are those of the formats.
func TestReaders(t *testing.T) {
	var text, lines bytes.Buffer
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&text), textlogger.Verbosity(4)))
	zap, _ := logsjson.NewJSONLogger(4, nothing{&lines}, nil, nil)
	for _, logger := range []interface {
		Info(string, ...any)
		Error(error, string, ...any)
	}{logger, zap} {
		logger.Info("it is \"quoted\"", "path", "/a b", "count", 3)
		logger.Error(io.EOF, "it failed")
	}
	for name, read := range map[string]func(string) (entry, error){"text": readText, "json": readJSON} {
		all := text.String()
		if name == "json" {
			all = lines.String()
		}
		got := strings.Split(strings.TrimSpace(all), "\n")
		if len(got) != 2 {
			t.Fatalf("%s: %q", name, got)
		}
		info, err := read(got[0])
		if err != nil || info.severity != "I" || info.message != `it is "quoted"` || info.values["path"] != "/a b" || fmt.Sprint(info.values["count"]) != "3" {
			t.Errorf("%s: %+v %v", name, info, err)
		}
		failed, err := read(got[1])
		if err != nil || failed.severity != "E" || failed.values["err"] != "EOF" {
			t.Errorf("%s: %+v %v", name, failed, err)
		}
	}
	if _, err := readText("plain"); err == nil {
		t.Error("a line without a header is read")
	}
}

// TestServer reads every line of a server that is started, asked and stopped.
func TestServer(t *testing.T) {
	binary := controlplane.Server(t)
	for format, read := range map[string]func(string) (entry, error){"text": readText, "json": readJSON} {
		t.Run(format, func(t *testing.T) {
			var requests []entry
			for _, text := range logOf(t, binary, format) {
				// A trace has several lines, and what is printed for people has none.
				if strings.HasPrefix(text, "Trace[") {
					continue
				}
				line, err := read(text)
				if err != nil {
					t.Error(err)
				} else if line.message == "HTTP" {
					requests = append(requests, line)
				}
			}
			if !slices.ContainsFunc(requests, func(line entry) bool {
				return line.values["verb"] == "GET" && line.values["URI"] == `/version?x=REDACTED` && fmt.Sprint(line.values["resp"]) == "200" &&
					line.values["userAgent"] == `a "quoted" agent`
			}) {
				t.Errorf("the request is not among %d: %v", len(requests), requests)
			}
		})
	}
}

// logOf are the lines that a server writes to standard error at -v=4.
func logOf(t *testing.T, binary, format string) []string {
	t.Helper()
	ports, err := process.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	url := fmt.Sprintf("https://127.0.0.1:%d", ports[0])
	// What it prints for people goes elsewhere.
	server, err := process.Start(filepath.Join(folder, "log"), folder, "/bin/sh", "-c", `exec "$0" "$@" >stdout`, binary,
		fmt.Sprintf("--secure-port=%d", ports[0]), "--bind-address=127.0.0.1", "--v=4", "--logging-format="+format)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Kill)
	if err := server.Await(t.Context(), func() bool { return process.Answers(url + "/readyz") }); err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url+"/version?x=secret", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("User-Agent", `a "quoted" agent`)
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if err := server.Terminate(); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Split(server.Output(), "\n"), func(line string) bool { return line == "" })
}
