package monitoring

import (
	"context"
	"fmt"
	"math"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"
)

// panel is one of a Grafana dashboard.
type panel struct {
	ID          int
	Type        string
	Title       string
	Description string
	Datasource  struct{ Type, UID string }
	GridPos     struct{ H, W, X, Y int }
	FieldConfig struct{ Defaults struct{ Unit string } }
	Targets     []struct{ RefID, Expr, LegendFormat string }
}

// filled is an expression with Grafana's variables replaced.
func filled(expr string) string {
	return strings.NewReplacer("$__rate_interval", interval, "$instance", ".*").Replace(expr)
}

// A picture has three panels in a row.
const (
	width, height, gap, columns = 380, 200, 16, 3
	left, right, top, bottom    = 52, 8, 28, 22
	legends                     = 4
)

// colors of the lines of a panel, in turn.
var colors = []string{"#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf"}

// draw draws the panels from what was scraped.
func draw(ctx context.Context, prometheus *prometheus, panels []panel, path string) error {
	var body strings.Builder
	number := 0
	for _, panel := range panels {
		lines, err := linesOf(ctx, prometheus, panel)
		if err != nil {
			return err
		}
		if len(lines) == 0 {
			continue
		}
		x, y := gap+number%columns*(width+gap), gap+number/columns*(height+gap)
		fmt.Fprintf(&body, "<g transform=\"translate(%d %d)\">\n", x, y)
		plot(&body, panel, lines)
		body.WriteString("</g>\n")
		number++
	}
	rows := (number + columns - 1) / columns
	picture := fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"10\">\n"+
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#f4f5f7\"/>\n%s</svg>\n", columns*(width+gap)+gap, rows*(height+gap)+gap, body.String())
	return os.WriteFile(path, []byte(picture), 0o644)
}

// line is one of a panel: a value for each second, from the left.
type line struct {
	name   string
	values [][2]float64
}

func linesOf(ctx context.Context, prometheus *prometheus, panel panel) ([]line, error) {
	var lines []line
	for _, target := range panel.Targets {
		found, err := prometheus.ask(ctx, filled(target.Expr), loaded)
		if err != nil {
			return nil, err
		}
		for _, one := range found {
			name := target.LegendFormat
			for label, value := range one.Metric {
				name = strings.ReplaceAll(name, "{{"+label+"}}", value)
			}
			current := line{name: strings.TrimSuffix(name, ".{{group}}")}
			for _, value := range one.Values {
				text, _ := value[1].(string)
				at, _ := value[0].(float64)
				if number, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(number) && !math.IsInf(number, 0) {
					current.values = append(current.values, [2]float64{at, number})
				}
			}
			if len(current.values) > 1 {
				lines = append(lines, current)
			}
		}
	}
	last := func(l line) float64 { return l.values[len(l.values)-1][1] }
	sort.Slice(lines, func(a, b int) bool {
		if last(lines[a]) != last(lines[b]) {
			return last(lines[a]) > last(lines[b])
		}
		return lines[a].name < lines[b].name
	})
	return lines, nil
}

// plot writes a panel with its lines.
func plot(out *strings.Builder, panel panel, lines []line) {
	most, now := 0.0, float64(time.Now().Unix())
	for _, line := range lines {
		for _, value := range line.values {
			most = max(most, value[1])
		}
	}
	if most == 0 {
		most = 1
	}
	fmt.Fprintf(out, "<rect width=\"%d\" height=\"%d\" rx=\"4\" fill=\"#ffffff\" stroke=\"#d0d4da\"/>\n", width, height)
	fmt.Fprintf(out, "<text x=\"8\" y=\"16\" font-size=\"12\" font-weight=\"bold\">%s</text>\n", escaped(panel.Title))
	plotWidth, plotHeight := float64(width-left-right), float64(height-top-bottom)
	for _, share := range []float64{0, 0.5, 1} {
		y := top + plotHeight*(1-share)
		fmt.Fprintf(out, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#e3e6ea\"/>", left, width-right, y, y)
		fmt.Fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\" fill=\"#555555\">%s</text>\n", left-4, y+3, shown(most*share, panel.FieldConfig.Defaults.Unit))
	}
	for number, line := range lines {
		var points []string
		for _, value := range line.values {
			x := left + plotWidth*(1-(now-value[0])/loaded.Seconds())
			points = append(points, fmt.Sprintf("%.1f,%.1f", max(x, left), top+plotHeight*(1-value[1]/most)))
		}
		fmt.Fprintf(out, "<polyline fill=\"none\" stroke-width=\"1.5\" stroke=\"%s\" points=\"%s\"/>\n", colors[number%len(colors)], strings.Join(points, " "))
	}
	for number, line := range lines[:min(len(lines), legends)] {
		x := left + number*(width-left-right)/legends
		name := line.name
		if len(name) > 16 {
			name = name[:15] + "…"
		}
		fmt.Fprintf(out, "<text x=\"%d\" y=\"%d\" fill=\"%s\">%s</text>\n", x, height-7, colors[number%len(colors)], escaped(name))
	}
}

// shown is a value with its unit.
func shown(value float64, unit string) string {
	switch unit {
	case "s":
		return time.Duration(value * float64(time.Second)).Round(10 * time.Microsecond).String()
	case "percentunit":
		return fmt.Sprintf("%.0f%%", value*100)
	}
	suffixes, base := []string{"", "k", "M", "G", "T"}, 1000.0
	at := 0
	for value >= base && at < len(suffixes)-1 {
		value /= base
		at++
	}
	return strconv.FormatFloat(value, 'g', 3, 64) + suffixes[at] + map[string]string{"bytes": "B", "Bps": "B/s", "reqps": "/s", "ops": "/s", "d": " d"}[unit]
}

func escaped(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}
