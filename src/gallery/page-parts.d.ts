/** Made by the build (`rolldown.gallery.mjs`) of what is in `page/`. */
declare module 'virtual:gallery-page' {
  export const script: string;
  export const style: string;
}
