package monitoring

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
)

// dashboard is the panels of deploy/monitoring/dashboard.json, in their order.
func dashboard(t *testing.T) []panel {
	t.Helper()
	text, err := os.ReadFile(deployed + "dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Title, UID    string
		SchemaVersion int
		Templating    struct{ List []struct{ Name, Type string } }
		Panels        []panel
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	if board.Title == "" || board.UID == "" || board.SchemaVersion < 36 {
		t.Errorf("Grafana would not import %q %q %d", board.Title, board.UID, board.SchemaVersion)
	}
	var variables []string
	for _, variable := range board.Templating.List {
		variables = append(variables, variable.Name)
	}
	if !slices.Equal(variables, []string{"datasource", "instance"}) {
		t.Errorf("variables %v", variables)
	}
	return slices.DeleteFunc(board.Panels, func(panel panel) bool { return panel.Type == "row" })
}

// units are those of Grafana that the dashboard uses.
var units = []string{"short", "s", "bytes", "Bps", "reqps", "ops", "percentunit", "d"}

func TestDashboard(t *testing.T) {
	panels := dashboard(t)
	if len(panels) < 15 {
		t.Errorf("%d panels", len(panels))
	}
	ids := map[int]bool{}
	for number, panel := range panels {
		if ids[panel.ID] || panel.ID == 0 {
			t.Errorf("%s has number %d of another", panel.Title, panel.ID)
		}
		ids[panel.ID] = true
		if panel.Type != "timeseries" || panel.Title == "" || panel.Description == "" || !slices.Contains(units, panel.FieldConfig.Defaults.Unit) {
			t.Errorf("panel %+v", panel)
		}
		if panel.Datasource.Type != "prometheus" || panel.Datasource.UID != "${datasource}" {
			t.Errorf("%s is not from the data source that was chosen: %+v", panel.Title, panel.Datasource)
		}
		place := panel.GridPos
		if place.X < 0 || place.X+place.W > 24 || place.W == 0 || place.H == 0 {
			t.Errorf("%s lies at %+v", panel.Title, place)
		}
		for _, other := range panels[:number] {
			with := other.GridPos
			if place.X < with.X+with.W && with.X < place.X+place.W && place.Y < with.Y+with.H && with.Y < place.Y+place.H {
				t.Errorf("%s lies on %s", panel.Title, other.Title)
			}
		}
		if len(panel.Targets) == 0 {
			t.Errorf("%s shows nothing", panel.Title)
		}
		for _, target := range panel.Targets {
			if target.Expr == "" || target.RefID == "" || target.LegendFormat == "" {
				t.Errorf("%s: %+v", panel.Title, target)
			}
		}
	}
}
