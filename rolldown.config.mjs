import { defineConfig } from 'rolldown';
import { thirdPartyLicences } from './rolldown.licences.mjs';

// One chunk for each command that is loaded on demand: a local command never reads the network stack.
export default defineConfig({
  input: { mgw: 'src/cli/main.ts' },
  platform: 'node',
  external: [/^node:/],
  plugins: [thirdPartyLicences()],
  resolve: { conditionNames: ['node', 'import', 'default'] },
  output: {
    dir: 'dist',
    format: 'esm',
    entryFileNames: '[name].js',
    chunkFileNames: '[name]-[hash].js',
    minify: { mangle: false, compress: true },
    sourcemap: false,
  },
});
