package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// table has a line for each measure of a way, and a column for each server.
type table struct {
	servers []string
	lines   []*line
}

type line struct {
	way, measure string
	cells        map[string]string // by server
}

// add puts a figure into the table, and tells it to whoever waits for the end.
func (t *table) add(way, measure, server, figure string) {
	fmt.Fprintf(os.Stderr, "%s: %s: %s: %s\n", server, way, measure, figure)
	for _, one := range t.lines {
		if one.way == way && one.measure == measure {
			one.cells[server] = figure
			return
		}
	}
	t.lines = append(t.lines, &line{way, measure, map[string]string{server: figure}})
}

// print writes the table in Markdown; what could not be measured is left empty.
func (t *table) print(out io.Writer) {
	fmt.Fprintf(out, "| way | measure | %s |\n", strings.Join(t.servers, " | "))
	fmt.Fprintf(out, "|---|---|%s\n", strings.Repeat("--:|", len(t.servers)))
	for _, one := range t.lines {
		cells := []string{one.way, one.measure}
		for _, server := range t.servers {
			cells = append(cells, one.cells[server])
		}
		fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
	}
}
