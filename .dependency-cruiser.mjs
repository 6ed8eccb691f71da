// Imports point down. Each folder of src names the folders that it may import; root files are the vocabulary, which all may import.
const layers = {
  media: [],
  files: ['media'],
  http: ['files', 'media'],
  ledger: ['files'],
  protocols: ['http', 'media'],
  store: ['http'],
  budget: ['ledger', 'protocols', 'files'],
  payment: ['budget', 'ledger', 'http'],
  jobs: ['payment', 'budget', 'ledger', 'protocols', 'http', 'files', 'media'],
  config: ['files'],
  speech: ['jobs', 'payment', 'protocols', 'config', 'http', 'files', 'media'],
  responses: ['payment', 'protocols', 'http'],
  flows: [
    'jobs',
    'store',
    'speech',
    'responses',
    'config',
    'sandbox',
    'payment',
    'budget',
    'ledger',
    'protocols',
    'http',
    'files',
  ],
  gallery: ['jobs', 'speech', 'sandbox', 'budget', 'ledger', 'protocols', 'files'],
  batch: ['flows', 'jobs', 'speech', 'payment', 'budget', 'ledger', 'protocols', 'http', 'files'],
  library: [
    'flows',
    'batch',
    'gallery',
    'jobs',
    'speech',
    'responses',
    'config',
    'payment',
    'budget',
    'protocols',
  ],
  mcp: ['flows', 'jobs', 'speech', 'payment', 'budget', 'protocols'],
  cli: [
    'mcp',
    'flows',
    'batch',
    'gallery',
    'jobs',
    'speech',
    'responses',
    'config',
    'sandbox',
    'payment',
    'budget',
    'ledger',
    'protocols',
    'http',
    'files',
  ],
};

const folders = [...Object.keys(layers), 'sandbox'];

const layer = (name, from, to, comment) => ({
  name,
  comment,
  severity: 'error',
  from: { path: from },
  to: { path: to },
});

function layerOf([folder, allowed]) {
  const forbidden = folders.filter((other) => other !== folder && !allowed.includes(other));
  const path = `^src/(${forbidden.join('|')})/`;
  return layer(
    `${folder}-looks-down`,
    `^src/${folder}/`,
    path,
    `${folder} may import: ${allowed.join(', ')}.`,
  );
}

export default {
  forbidden: [
    layer(
      'vocabulary-imports-no-folder',
      '^src/[^/]+\\.ts$',
      `^src/(${folders.join('|')})/`,
      'Root files are the nouns.',
    ),
    ...Object.entries(layers).map(layerOf),
    layer(
      'every-folder-has-a-layer',
      `^src/(?!(${folders.join('|')})/)[^/]+/`,
      '',
      'A new folder of src is added to the table of layers.',
    ),
    layer(
      'protocols-touch-nothing',
      '^src/protocols/',
      '^(node:)?(fs|fs/promises|timers|timers/promises|child_process)$',
      'A protocol never sleeps, prints or touches the disk.',
    ),
    {
      name: 'protocols-stand-alone',
      comment: 'Siblings never import each other.',
      severity: 'error',
      from: { path: '^src/protocols/([^/]+)/' },
      to: { path: '^src/protocols/[^/]+/', pathNot: '^src/protocols/$1/' },
    },
    layer(
      'jobs-name-no-protocol',
      '^src/jobs/',
      '^src/protocols/([^/]+/|registry|named)',
      'What can be done with any job names no protocol.',
    ),
    layer(
      'conf-has-one-user',
      '^src/(?!config/store\\.ts)',
      'node_modules/conf/',
      'config/store is the only user of conf.',
    ),
    layer(
      'undici-has-one-folder',
      '^src/(?!http/)',
      'node_modules/undici/',
      'http/ makes every dispatcher, so that nothing passes the order of a submission by.',
    ),
    layer(
      'the-client-speaks-through-undici',
      '^src/(?!sandbox/)',
      '^(node:)?(http|https|http2|net|tls)$',
      'One HTTP stack, and the server of the sandbox, which serves galleries too. Types count, and so does what is loaded later.',
    ),
    layer(
      'a-page-runs-in-a-browser',
      '^src/gallery/page/',
      '^(?!src/gallery/(page/|data\\.ts$))',
      'It shares with mgw nothing but the shape of its data, and how a sound is drawn.',
    ),
    {
      name: 'sandbox-shares-nothing-with-the-client',
      comment: 'The two must not be able to agree on a mistake.',
      severity: 'error',
      from: { path: '^src/sandbox/' },
      to: { path: '^src/', pathNot: '^src/sandbox/' },
    },
    { name: 'no-circles', severity: 'error', from: {}, to: { circular: true } },
    {
      name: 'no-unresolved',
      severity: 'error',
      from: {},
      to: { couldNotResolve: true, pathNot: '^virtual:' },
    },
  ],
  options: {
    doNotFollow: { path: ['node_modules', '^dist/'] },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    enhancedResolveOptions: {
      exportsFields: ['exports'],
      conditionNames: ['import', 'node', 'default', 'types'],
    },
  },
};
