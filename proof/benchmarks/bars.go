package main

import (
	"image/color"
	"math"
	"path/filepath"
	"slices"
	"strings"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// barred lists the plots with a bar for each case of a group, by the group's name.
var barred = map[string]struct {
	plotted
	log bool
}{
	"runs":      {plotted{"No-ops with history", "runs.svg"}, false},
	"triggered": {plotted{"From the trigger of a run to its start", "triggered.svg"}, true},
	"ahead":     {plotted{"From the instant for which a run is scheduled to its start", "ahead.svg"}, true},
	"ticks":     {plotted{"From the tick of a schedule to the start of its run", "ticks.svg"}, true},
	"slots":     {plotted{"Slots in use", "slots.svg"}, false},
	"append":    {plotted{"A message appended in a transaction", "append.svg"}, false},
	"delivery":  {plotted{"Messages delivered", "delivery.svg"}, false},
	"commit":    {plotted{"From the commit of a message to its delivery", "commit.svg"}, true},
	"history":   {plotted{"Messages delivered beside old ones", "history.svg"}, false},
	"keys":      {plotted{"Messages delivered in the order of their keys", "keys.svg"}, false},
	"bridge":    {plotted{"Slots in use by River, limit of tickslot", "bridge.svg"}, false},
}

// plotBars draws the plots that have figures.
func plotBars(folder string, all []Result) (list []plotted, err error) {
	for _, r := range all {
		p, ok := barred[r.Group.Plot]
		if !ok || len(r.Figures) == 0 {
			continue
		}
		if err := drawBars(p.title, filepath.Join(folder, p.file), r, p.log); err != nil {
			return nil, err
		}
		list = append(list, p.plotted)
	}
	return list, nil
}

// drawBars draws the first case at the top.
func drawBars(title, file string, r Result, log bool) error {
	p := gonum.New()
	p.Title.Text, p.X.Label.Text = title, r.Group.Unit
	var names []string
	for _, f := range slices.Backward(r.Figures) {
		if strings.HasSuffix(f.Case, again) {
			continue
		}
		at := float64(len(names))
		colour := plotutil.Color(0)
		if !strings.HasPrefix(f.Case, "tickslot") {
			colour = plotutil.Color(1)
		}
		mark, err := barOrDot(f.Value.Median, at, colour, log)
		if err != nil {
			return err
		}
		spread, err := plotter.NewXErrorBars(series{XYs: plotter.XYs{{X: f.Value.Median, Y: at}},
			XErrors: plotter.XErrors{{Low: f.Value.Median - f.Value.Min, High: f.Value.Max - f.Value.Median}}})
		if err != nil {
			return err
		}
		p.Add(mark, spread)
		names = append(names, f.Case)
	}
	p.NominalY(names...)
	p.Y.Min, p.Y.Max = -0.5, float64(len(names))-0.5
	if log { // in whole decades
		p.X.Scale, p.X.Tick.Marker = gonum.LogScale{}, gonum.LogTicks{Prec: -1}
		p.X.Min, p.X.Max = decade(p.X.Min, math.Floor), decade(p.X.Max, math.Ceil)
	} else {
		p.X.Min = 0
	}
	return p.Save(18*vg.Centimeter, 8*vg.Centimeter, file)
}

// barOrDot returns a bar, or a dot on a log scale, which has no zero.
func barOrDot(x, y float64, colour color.Color, log bool) (gonum.Plotter, error) {
	if log {
		dot, err := plotter.NewScatter(plotter.XYs{{X: x, Y: y}})
		if err == nil {
			dot.Color, dot.Shape, dot.Radius = colour, draw.CircleGlyph{}, vg.Points(4)
		}
		return dot, err
	}
	bar, err := plotter.NewBarChart(plotter.Values{x}, vg.Points(14))
	if err == nil {
		bar.Horizontal, bar.XMin, bar.LineStyle.Width, bar.Color = true, y, 0, colour
	}
	return bar, err
}

// decade rounds to a power of ten.
func decade(x float64, round func(float64) float64) float64 {
	return math.Pow(10, round(math.Log10(x)))
}
