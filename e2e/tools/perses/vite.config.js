import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

// PROMETHEUS is the address of a Prometheus that has data.
export default defineConfig({
  plugins: [react()],
  build: { chunkSizeWarningLimit: 20000 },
  preview: {
    proxy: { '/prometheus': { target: process.env.PROMETHEUS, rewrite: (path) => path.replace(/^\/prometheus/, '') } },
  },
});
