// Renders a Grafana dashboard with the panels of Perses: `/?dashboard=NAME&minutes=N` shows public/NAME.json.
import { ThemeProvider } from '@mui/material/styles';
import { ChartsProvider, generateChartsTheme, getTheme, SnackbarProvider } from '@perses-dev/components';
import { DatasourceStoreProvider, Panel, VariableProvider } from '@perses-dev/dashboards';
import {
  DataQueriesProvider,
  dynamicImportPluginLoader,
  PluginRegistry,
  TimeRangeProvider,
} from '@perses-dev/plugin-system';
import * as prometheus from '@perses-dev/prometheus-plugin';
import * as stat from '@perses-dev/stat-chart-plugin';
import * as timeseries from '@perses-dev/timeseries-chart-plugin';
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import { createRoot } from 'react-dom/client';
import { MemoryRouter } from 'react-router-dom';

const asked = new URLSearchParams(window.location.search);
const ROW = 38;
// Units of Grafana, as Perses calls them.
const UNITS = { s: 'seconds', bytes: 'bytes', percentunit: 'percent-decimal', reqps: 'requests/sec', cps: 'counts/sec' };

const source = {
  kind: 'GlobalDatasource',
  metadata: { name: 'prometheus' },
  spec: { default: true, plugin: { kind: 'PrometheusDatasource', spec: { directUrl: '/prometheus', scrapeInterval: '1s' } } },
};
const sources = {
  getDatasource: () => Promise.resolve(undefined),
  getGlobalDatasource: () => Promise.resolve(source),
  listDatasources: () => Promise.resolve([]),
  listGlobalDatasources: () => Promise.resolve([source]),
  buildProxyUrl: () => '/prometheus',
};
const dashboard = {
  kind: 'Dashboard',
  metadata: { name: 'dashboard', project: 'dragoman', version: 0 },
  spec: { duration: '30m', panels: {}, layouts: [], variables: [] },
};
const loader = dynamicImportPluginLoader(
  [prometheus, stat, timeseries].map((plugin) => ({
    resource: plugin.getPluginModule(),
    importPlugin: () => Promise.resolve(plugin),
  })),
);
const theme = getTheme('light');
const client = new QueryClient({ defaultOptions: { queries: { refetchOnWindowFocus: false, retry: 0 } } });

function Shown({ panel }) {
  const unit = UNITS[panel.fieldConfig.defaults.unit] ?? 'decimal';
  const format = { unit, decimalPlaces: 2, shortValues: true };
  const isStat = panel.type === 'stat';
  const plugin = isStat
    ? { kind: 'StatChart', spec: { calculation: 'last-number', format } }
    : { kind: 'TimeSeriesChart', spec: { legend: { position: 'bottom' }, yAxis: { format } } };
  // Two intervals of the scrape, as Grafana substitutes it.
  const query = (target) => ({
    kind: 'PrometheusTimeSeriesQuery',
    spec: {
      query: target.expr.replaceAll('$__rate_interval', '10s'),
      seriesNameFormat: target.legendFormat,
    },
  });
  const { x, y, w, h } = panel.gridPos;
  const place = { gridColumn: `${x + 1} / span ${w}`, gridRow: `${y + 1} / span ${h}` };
  return (
    <div style={place}>
      <DataQueriesProvider definitions={panel.targets.map(query)} options={{ suggestedStepMs: 5000 }}>
        <Panel
          definition={{
            kind: 'Panel',
            spec: { display: { name: panel.title, description: panel.description }, plugin },
          }}
        />
      </DataQueriesProvider>
    </div>
  );
}

function Page() {
  const [shown, setShown] = useState();
  useEffect(() => {
    fetch(`/${asked.get('dashboard')}.json`)
      .then((answer) => answer.json())
      .then(setShown);
  }, []);
  if (!shown) return null;
  return (
    <main style={{ padding: 8, fontFamily: 'sans-serif' }}>
      <h2 style={{ margin: 8 }}>{shown.title}</h2>
      <div style={{ display: 'grid', gridTemplateColumns: 'repeat(24, 1fr)', gridAutoRows: ROW, gap: 4 }}>
        {shown.panels.map((panel) =>
          panel.type === 'row' ? (
            <b key={panel.id} style={{ gridColumn: '1 / span 24', gridRow: panel.gridPos.y + 1, padding: 8 }}>
              {panel.title}
            </b>
          ) : (
            <Shown key={panel.id} panel={panel} />
          ),
        )}
      </div>
    </main>
  );
}

createRoot(document.getElementById('root')).render(
  <MemoryRouter>
    <ThemeProvider theme={theme}>
      <ChartsProvider chartsTheme={generateChartsTheme(theme, {})}>
        <SnackbarProvider>
          <PluginRegistry
            pluginLoader={loader}
            defaultPluginKinds={{ Panel: 'TimeSeriesChart', TimeSeriesQuery: 'PrometheusTimeSeriesQuery' }}
          >
            <QueryClientProvider client={client}>
              <TimeRangeProvider
                timeRange={{ pastDuration: `${asked.get('minutes') ?? 5}m` }}
                refreshInterval="0s"
                setTimeRange={() => {}}
                setRefreshInterval={() => {}}
              >
                <VariableProvider>
                  <DatasourceStoreProvider dashboardResource={dashboard} datasourceApi={sources}>
                    <Page />
                  </DatasourceStoreProvider>
                </VariableProvider>
              </TimeRangeProvider>
            </QueryClientProvider>
          </PluginRegistry>
        </SnackbarProvider>
      </ChartsProvider>
    </ThemeProvider>
  </MemoryRouter>,
);
