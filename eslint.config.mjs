import js from '@eslint/js';
import tseslint from 'typescript-eslint';

const processExit = {
  object: 'process',
  property: 'exit',
  message: 'It truncates piped output: set process.exitCode.',
};
const undiciOnly = 'Requests go through src/http, which sends them by undici (decision 16).';

// Phrases of an earlier dialect: relative clauses instead of nouns, and "where" for "if".
const telltales = [
  'whoever',
  'nobody',
  'somebody',
  'all the same',
  'undefined where',
  'true where',
  'false where',
  'where absent',
  'where there is',
  'where there are',
  'where there was',
  'where none',
  'be had',
  'heard of',
  'for ever',
  'allowed is',
  'under way',
  'what came',
  'goes before',
  'so many words',
];

export default tseslint.config(
  { ignores: ['dist', 'release', 'node_modules', 'coverage'] },
  js.configs.recommended,
  ...tseslint.configs.strictTypeChecked,
  {
    languageOptions: {
      parserOptions: {
        projectService: true,
        tsconfigRootDir: import.meta.dirname,
      },
    },
    rules: {
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      '@typescript-eslint/switch-exhaustiveness-check': 'error',
      '@typescript-eslint/consistent-type-imports': 'error',
      // Optional chains and fallbacks check values that arrived over the network.
      '@typescript-eslint/no-unnecessary-condition': 'off',
      'no-control-regex': 'off',
      'no-restricted-properties': ['error', processExit],
    },
  },
  {
    files: ['src/**'],
    ignores: ['src/gallery/page/**', 'src/sandbox/**', 'src/modules.d.ts'],
    rules: {
      'no-restricted-globals': ['error', { name: 'fetch', message: undiciOnly }],
      'no-restricted-properties': [
        'error',
        processExit,
        ...['globalThis', 'global'].map((object) => ({ object, property: 'fetch', message: undiciOnly })),
      ],
      '@typescript-eslint/no-restricted-imports': [
        'error',
        { paths: [{ name: 'undici', allowTypeImports: true, message: undiciOnly }] },
      ],
    },
  },
  {
    files: ['src/**'],
    rules: {
      'max-lines': ['error', 300],
      'max-lines-per-function': ['error', 60],
      'no-warning-comments': ['error', { terms: telltales, location: 'anywhere' }],
      'no-restricted-syntax': [
        'error',
        ...['Literal[value', 'TemplateElement[value.raw'].map((text) => ({
          selector: `${text}=/\\b(${telltales.join('|')})\\b/i]`,
          message: 'Name the thing, and say "if" for a condition (CONTRIBUTING.md).',
        })),
      ],
    },
  },
  {
    files: [
      'bin/*.js',
      'bench/**/*.mjs',
      'test/storm/*.mjs',
      'test/simulation/*.mjs',
      'test/support/*.mjs',
      'scripts/**/*.mjs',
      '*.mjs',
      '.dependency-cruiser.mjs',
    ],
    ...tseslint.configs.disableTypeChecked,
    languageOptions: {
      globals: {
        process: 'readonly',
        console: 'readonly',
        URL: 'readonly',
        setTimeout: 'readonly',
        performance: 'readonly',
      },
    },
  },
  {
    files: ['bin/*.js'],
    languageOptions: { sourceType: 'commonjs', globals: { require: 'readonly', __dirname: 'readonly' } },
    rules: { '@typescript-eslint/no-require-imports': 'off' },
  },
);
